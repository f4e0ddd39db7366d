//! The environment as the finding of a topology sees it: [`Vars`], and values with their names: [`Field`].

use std::ffi::OsStr;

use rankrun::Env;
use rankrun::crates::types::escape_os_str;

use super::error::shortened;
use super::{MAX_NODES, TopologyError};

/// A value with where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field<T> {
    pub(super) value: T,
    pub(super) from: String,
}

impl<T> Field<T> {
    pub(super) fn new(value: T, from: impl Into<String>) -> Self {
        Self { value, from: from.into() }
    }
}

impl<T: std::fmt::Display> Field<T> {
    /// `NAME=value`, or `--name value` for an argument.
    pub(super) fn shown(&self) -> String {
        let between = if self.from.starts_with('-') { ' ' } else { '=' };
        format!("{}{between}{}", self.from, shortened(&self.value.to_string()))
    }
}

/// Variables that are set and not empty, as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vars<'a>(pub(super) &'a Env);

impl<'a> Vars<'a> {
    /// The value; one that is no Unicode does not parse anywhere, and is shown escaped.
    pub(super) fn get(self, name: &str) -> Option<String> {
        let value = self.0.get(OsStr::new(name)).filter(|value| !value.is_empty())?;
        Some(value.to_str().map_or_else(|| escape_os_str(value), str::to_owned))
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn text(self, name: &str) -> Option<Field<String>> {
        self.get(name).map(|value| Field::new(value, name))
    }

    /// As [`text`](Self::text), for what is taken as it is.
    pub(super) fn unicode(self, name: &str, expected: &str) -> Result<Option<Field<String>>, TopologyError> {
        let is_text = self.0.get(OsStr::new(name)).is_none_or(|value| value.to_str().is_some());
        match self.text(name) {
            Some(field) if !is_text => Err(invalid(field, expected)),
            field => Ok(field),
        }
    }

    /// The first of these that is set.
    pub(super) fn first(self, names: &[&str]) -> Option<Field<String>> {
        names.iter().find_map(|name| self.text(name))
    }

    pub(super) fn number(self, name: &str) -> Result<Option<Field<u64>>, TopologyError> {
        self.text(name).map(number).transpose()
    }

    /// The first of these that is set, as a number.
    pub(super) fn first_number(self, names: &[&str]) -> Result<Option<Field<u64>>, TopologyError> {
        self.first(names).map(number).transpose()
    }
}

/// A number of nodes, if it is one that can be.
pub(super) fn node_count(field: Field<u64>) -> Result<Field<usize>, TopologyError> {
    match usize::try_from(field.value) {
        Ok(nodes) if (1..=MAX_NODES).contains(&nodes) => Ok(Field::new(nodes, field.from)),
        _ => Err(TopologyError::Invalid {
            name: field.from,
            value: field.value.to_string(),
            expected: format!("a number of nodes from 1 to {MAX_NODES}"),
        }),
    }
}

fn number(field: Field<String>) -> Result<Field<u64>, TopologyError> {
    match field.value.trim().parse() {
        Ok(value) => Ok(Field::new(value, field.from)),
        Err(_) => Err(invalid(field, "a whole number, 0 or more")),
    }
}

pub(super) fn invalid(field: Field<String>, expected: &str) -> TopologyError {
    TopologyError::Invalid { name: field.from, value: field.value, expected: expected.to_owned() }
}
