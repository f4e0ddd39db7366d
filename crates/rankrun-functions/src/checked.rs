//! A serializer around another one that refuses what MessagePack cannot bring back: [`Checked`]. Not here: the other one
//! (`codec`).
//!
//! `Some(())` and `Some(None)` are written as `None` is, and a value that is nested too deep is written and then not read.
//! Both are seen only while a value is written, at each of its parts; so each part goes through here. All of it is inlined
//! where code is optimized, and costs nothing that could be measured there.

use std::cell::Cell;
use std::fmt::Display;

use serde::ser::{self, Serialize, Serializer};

/// How many sequences, maps, structs and enums may lie in each other.
pub(crate) const MAX_DEPTH: u16 = 1024;

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    TooDeep,
    SomeOfNothing,
}

/// Where in a value its writing is.
#[derive(Clone, Copy)]
struct At<'c> {
    depth: u16,
    /// Whether it is directly in a `Some`.
    in_some: bool,
    /// For the first fault, as the other serializer's errors are texts, and may be dropped by who gets them.
    fault: &'c Cell<Option<Fault>>,
}

impl At<'_> {
    fn fail<E: ser::Error>(self, fault: Fault) -> E {
        self.fault.set(self.fault.get().or(Some(fault)));
        E::custom("it is refused")
    }

    /// For what is below a sequence, map, struct or enum.
    fn below<E: ser::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.fail(Fault::TooDeep));
        }
        Ok(Self { depth: self.depth + 1, in_some: false, ..self })
    }
}

/// A serializer with a place in the value.
pub(crate) struct Checked<'c, S> {
    inner: S,
    at: At<'c>,
}

impl<'c, S> Checked<'c, S> {
    /// Around a serializer for a whole value; what is wrong with it will be in `fault`.
    pub(crate) fn new(inner: S, fault: &'c Cell<Option<Fault>>) -> Self {
        Self { inner, at: At { depth: 0, in_some: false, fault } }
    }
}

/// A part of a value with its place.
struct Part<'a, 'c, T: ?Sized> {
    value: &'a T,
    at: At<'c>,
}

impl<T: ?Sized + Serialize> Serialize for Part<'_, '_, T> {
    #[inline]
    fn serialize<S: Serializer>(&self, inner: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Checked { inner, at: self.at })
    }
}

macro_rules! plain {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(
            #[inline]
            fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
                self.inner.$method(value)
            }
        )*
    };
}

macro_rules! compound {
    ($($method:ident($($name:ident: $type:ty),*) -> $compound:ident),* $(,)?) => {
        $(
            #[inline]
            fn $method(self, $($name: $type),*) -> Result<Self::$compound, S::Error> {
                let at = self.at.below()?;
                Ok(Checked { inner: self.inner.$method($($name),*)?, at })
            }
        )*
    };
}

impl<'c, S: Serializer> Serializer for Checked<'c, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Checked<'c, S::SerializeSeq>;
    type SerializeTuple = Checked<'c, S::SerializeTuple>;
    type SerializeTupleStruct = Checked<'c, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Checked<'c, S::SerializeTupleVariant>;
    type SerializeMap = Checked<'c, S::SerializeMap>;
    type SerializeStruct = Checked<'c, S::SerializeStruct>;
    type SerializeStructVariant = Checked<'c, S::SerializeStructVariant>;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_f32: f32, serialize_f64: f64, serialize_char: char, serialize_str: &str,
        serialize_bytes: &[u8], serialize_unit_struct: &'static str,
    }

    compound! {
        serialize_seq(len: Option<usize>) -> SerializeSeq,
        serialize_tuple(len: usize) -> SerializeTuple,
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct,
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize)
            -> SerializeTupleVariant,
        serialize_map(len: Option<usize>) -> SerializeMap,
        serialize_struct(name: &'static str, len: usize) -> SerializeStruct,
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize)
            -> SerializeStructVariant,
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        if self.at.in_some { Err(self.at.fail(Fault::SomeOfNothing)) } else { self.inner.serialize_none() }
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        if self.at.in_some { Err(self.at.fail(Fault::SomeOfNothing)) } else { self.inner.serialize_unit() }
    }

    #[inline]
    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&Part { value, at: At { in_some: true, ..self.at } })
    }

    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        // It is written as what is in it.
        self.inner.serialize_newtype_struct(name, &Part { value, at: self.at })
    }

    #[inline]
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let at = self.at.below()?;
        self.inner.serialize_newtype_variant(name, index, variant, &Part { value, at })
    }

    fn collect_str<T: ?Sized + Display>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! parts {
    ($($compound:ident: $($method:ident),*;)*) => {
        $(
            impl<C: ser::$compound> ser::$compound for Checked<'_, C> {
                type Ok = C::Ok;
                type Error = C::Error;

                $(
                    #[inline]
                    fn $method<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), C::Error> {
                        self.inner.$method(&Part { value, at: self.at })
                    }
                )*

                #[inline]
                fn end(self) -> Result<C::Ok, C::Error> {
                    self.inner.end()
                }
            }
        )*
    };
}

parts! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
    SerializeMap: serialize_key, serialize_value;
}

macro_rules! fields {
    ($($compound:ident),*) => {
        $(
            impl<C: ser::$compound> ser::$compound for Checked<'_, C> {
                type Ok = C::Ok;
                type Error = C::Error;

                #[inline]
                fn serialize_field<T: ?Sized + Serialize>(&mut self, key: &'static str, value: &T) -> Result<(), C::Error> {
                    self.inner.serialize_field(key, &Part { value, at: self.at })
                }

                fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                    self.inner.skip_field(key)
                }

                #[inline]
                fn end(self) -> Result<C::Ok, C::Error> {
                    self.inner.end()
                }
            }
        )*
    };
}

fields!(SerializeStruct, SerializeStructVariant);
