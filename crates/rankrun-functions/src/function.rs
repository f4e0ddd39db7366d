//! What can be a worker's function: the trait [`Function`]. Not here: registering one (`registry`).

use std::any::TypeId;
use std::error::Error;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A function that can be a worker: one argument, and a value, a `Result`, or nothing to return.
///
/// Implemented for every `fn(A) -> Result<R, E>` and `fn(A) -> R` where serde can write and read `A` and `R`, and `E` is an
/// error or what `?` makes one of (`Box<dyn Error>`, a text). `M` tells the two apart and is never written out.
///
/// A function whose *error* can be written and read too, such as `Result<u64, String>`, could be either, and the compiler
/// asks which ("type annotations needed"): wrap it in [`returns_result`] wherever it is named.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the function of a worker",
    note = "a worker's function takes one argument and returns a value or a `Result`, and serde must be able to write and \
            read the argument and the value"
)]
pub trait Function<M>: Copy + 'static {
    /// What it takes.
    type Arguments: Serialize + DeserializeOwned + 'static;
    /// What it returns when all is well.
    type Value: Serialize + DeserializeOwned + 'static;

    /// Calls it.
    ///
    /// # Errors
    /// Its own.
    fn call(self, arguments: Self::Arguments) -> Result<Self::Value, Box<dyn Error>>;

    /// Its name: the path in its crate.
    #[must_use]
    fn name(self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Which function it is, as its name may be that of others too.
    #[doc(hidden)]
    fn identity(self) -> Identity {
        Identity { id: TypeId::of::<Self>(), name: self.name(), is_wrapped: false }
    }
}

/// Which function a type stands for.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
    /// Whether it is named within [`returns_result`].
    pub(crate) is_wrapped: bool,
}

impl Identity {
    /// What registers it, to be shown.
    pub(crate) fn registration(self) -> String {
        if self.name.contains("{{closure}}") {
            return "make a `fn` with a name of the closure, and add `entrypoint!(...);` for it".to_owned();
        }
        let path = path_beside(self.name);
        let what = if self.is_wrapped { format!("returns_result({path})") } else { path };
        format!("add `entrypoint!({what});` beside it")
    }
}

/// What names a function beside its definition: `last::<f32>` for `my_crate::last<f32>`.
pub(crate) fn path_beside(name: &str) -> String {
    match name.split_once('<') {
        // A method of a trait.
        Some(("", _)) => name.to_owned(),
        Some((path, types)) => format!("{}::<{types}", last(path)),
        None => last(name).to_owned(),
    }
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Marks functions that return a `Result`; see [`Function`].
#[derive(Debug)]
pub struct ReturnsResult<A, R, E>(PhantomData<(A, R, E)>);

/// Marks functions that return a value; see [`Function`].
#[derive(Debug)]
pub struct ReturnsValue<A, R>(PhantomData<(A, R)>);

impl<F, A, R, E> Function<ReturnsResult<A, R, E>> for F
where
    F: Fn(A) -> Result<R, E> + Copy + 'static,
    A: Serialize + DeserializeOwned + 'static,
    R: Serialize + DeserializeOwned + 'static,
    E: Into<Box<dyn Error>>,
{
    type Arguments = A;
    type Value = R;

    fn call(self, arguments: A) -> Result<R, Box<dyn Error>> {
        self(arguments).map_err(Into::into)
    }
}

impl<F, A, R> Function<ReturnsValue<A, R>> for F
where
    F: Fn(A) -> R + Copy + 'static,
    A: Serialize + DeserializeOwned + 'static,
    R: Serialize + DeserializeOwned + 'static,
{
    type Arguments = A;
    type Value = R;

    fn call(self, arguments: A) -> Result<R, Box<dyn Error>> {
        Ok(self(arguments))
    }
}

/// A function whose `Result` is a result, although serde could write the whole of it; made by [`returns_result`].
#[derive(Debug, Clone, Copy)]
pub struct Fallible<F>(F);

/// Marks [`Fallible`] functions; see [`Function`].
#[derive(Debug)]
pub struct Wrapped<A, R, E>(PhantomData<(A, R, E)>);

/// Says that a function returns a `Result` of which `Err` is a failure, for a function whose error serde can write too.
///
/// ```
/// use rankrun_functions::{Function, returns_result};
///
/// fn half(n: u64) -> Result<u64, String> {
///     if n % 2 == 0 { Ok(n / 2) } else { Err(format!("{n} is odd")) }
/// }
/// rankrun_functions::entrypoint!(returns_result(half));
///
/// assert_eq!(returns_result(half).call(8).unwrap(), 4);
/// assert_eq!(returns_result(half).call(7).unwrap_err().to_string(), "7 is odd");
/// ```
#[must_use]
pub fn returns_result<A, R, E, F: Fn(A) -> Result<R, E>>(function: F) -> Fallible<F> {
    Fallible(function)
}

impl<F, A, R, E> Function<Wrapped<A, R, E>> for Fallible<F>
where
    F: Fn(A) -> Result<R, E> + Copy + 'static,
    A: Serialize + DeserializeOwned + 'static,
    R: Serialize + DeserializeOwned + 'static,
    E: Into<Box<dyn Error>>,
{
    type Arguments = A;
    type Value = R;

    fn call(self, arguments: A) -> Result<R, Box<dyn Error>> {
        self.0(arguments).map_err(Into::into)
    }

    fn name(self) -> &'static str {
        std::any::type_name::<F>()
    }

    fn identity(self) -> Identity {
        Identity { id: TypeId::of::<F>(), name: std::any::type_name::<F>(), is_wrapped: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_registers_a_function_is_what_its_author_would_write() {
        fn text(name: &'static str, is_wrapped: bool) -> String {
            Identity { id: TypeId::of::<()>(), name, is_wrapped }.registration()
        }
        for (name, path) in [
            ("train", "train"),
            ("app::train", "train"),
            ("app::last<f32>", "last::<f32>"),
            ("app::last<alloc::string::String>", "last::<alloc::string::String>"),
            ("<app::T as app::Trait>::method", "<app::T as app::Trait>::method"),
        ] {
            assert_eq!(text(name, false), format!("add `entrypoint!({path});` beside it"));
            assert_eq!(text(name, true), format!("add `entrypoint!(returns_result({path}));` beside it"));
        }
        assert!(text("app::main::{{closure}}", false).starts_with("make a `fn`"));
    }
}
