//! The functions of this program that can be workers: the macro [`entrypoint!`](crate::entrypoint) and the look-up.
//! Not here: calling one (`call`, `worker`).

use std::any::TypeId;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::files::Assignment;
use crate::function::Identity;
use crate::worker::Work;
use crate::{Function, worker};

/// Makes a function one that can be a worker: `entrypoint!(train);`, once, in any module of the program.
///
/// The function stays what it is. It is known by its path, such as `my_crate::train`; a generic one is registered for each
/// type that it is used with, `entrypoint!(train::<f32>)`. The linker collects what is registered, in libraries too, so no
/// list has to be kept; what is not registered, or twice, is refused when a group of it is started.
#[macro_export]
macro_rules! entrypoint {
    ($function:expr) => {
        const _: () = {
            #[$crate::__private::linkme::distributed_slice($crate::__private::FUNCTIONS)]
            #[linkme(crate = $crate::__private::linkme)]
            static ENTRY: $crate::__private::Entry = $crate::__private::Entry {
                name: || $crate::__private::name($function),
                id: || $crate::__private::id($function),
                types: || $crate::__private::types($function),
                run: |work| $crate::__private::run($function, work),
                place: ::core::concat!(::core::file!(), ":", ::core::line!(), ":", ::core::column!()),
            };
        };
    };
}

/// A registered function.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: fn() -> &'static str,
    /// Which function it is.
    pub id: fn() -> TypeId,
    /// The names of the types that it takes and gives.
    pub types: fn() -> [&'static str; 2],
    /// Runs it as a worker.
    pub run: fn(Work) -> Result<(), Box<dyn std::error::Error>>,
    /// Where it is registered: file, line and column.
    pub place: &'static str,
}

/// All registered functions of this program.
#[linkme::distributed_slice]
pub static FUNCTIONS: [Entry];

/// The name of a function.
pub fn name<M, F: Function<M>>(function: F) -> &'static str {
    only_a_function::<F>();
    function.name()
}

/// Which function it is.
pub fn id<M, F: Function<M>>(function: F) -> TypeId {
    function.identity().id
}

/// Does not compile for a pointer to a function, or a closure that holds something: a worker would not have what is in it,
/// and all that are of its type have one name.
pub(crate) const fn only_a_function<F>() {
    const {
        assert!(
            size_of::<F>() == 0,
            "a function by its name is needed, not a pointer to one nor a closure with captures"
        );
    }
}

/// The names of the types that a function takes and gives.
pub fn types<M, F: Function<M>>(_: F) -> [&'static str; 2] {
    [std::any::type_name::<F::Arguments>(), std::any::type_name::<F::Value>()]
}

/// Runs a function as a worker.
///
/// # Errors
/// The function's own, and what is wrong with its arguments or its value.
pub fn run<M, F: Function<M>>(function: F, work: Work) -> Result<(), Box<dyn std::error::Error>> {
    worker::run(function, work)
}

/// There is not just one function of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookUpError {
    /// There is none.
    #[error("function `{name}` is not registered: {advice}; {}", Known(.known))]
    Unknown {
        /// The name.
        name: String,
        /// What registers it.
        advice: String,
        /// The names of all that are registered.
        known: Vec<String>,
    },
    /// There is more than one.
    #[error("function `{name}` is registered {} times: in {}; {}", .places.len(), .places.join(", "), Known(.known))]
    Ambiguous {
        /// The name.
        name: String,
        /// Where they are registered: file, line and column.
        places: Vec<String>,
        /// The names of all that are registered.
        known: Vec<String>,
    },
    /// The one that is registered is another one, of which the compiler makes the same path: both are in blocks, closures or
    /// macros of one function.
    #[error(
        "function `{name}` is not registered, but another one of the same path is, at {place}: name one of the two otherwise"
    )]
    OtherOfThatName {
        /// The name of both.
        name: String,
        /// Where the other one is registered: file, line and column.
        place: String,
    },
}

/// Shows the names of what is registered.
pub(crate) struct Known<'a>(pub(crate) &'a [String]);

impl std::fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => f.write_str("no function is registered"),
            names => write!(f, "registered: `{}`", names.join("`, `")),
        }
    }
}

/// The function in this program.
pub(crate) fn look_up(entries: &[Entry], function: Identity) -> Result<&Entry, LookUpError> {
    match by_name(entries, function.name) {
        Ok(entry) if (entry.id)() != function.id => {
            let (name, place) = (function.name.to_owned(), entry.place.to_owned());
            Err(LookUpError::OtherOfThatName { name, place })
        }
        Err(LookUpError::Unknown { name, known, .. }) => {
            Err(LookUpError::Unknown { name, advice: function.registration(), known })
        }
        other => other,
    }
}

/// The function of a name, which another process may have given.
fn by_name<'a>(entries: &'a [Entry], name: &str) -> Result<&'a Entry, LookUpError> {
    let found: Vec<&Entry> = entries.iter().filter(|entry| (entry.name)() == name).collect();
    let name = name.to_owned();
    match found[..] {
        [entry] => Ok(entry),
        [] => {
            let advice = "there is none of this path here".to_owned();
            Err(LookUpError::Unknown { name, advice, known: names(entries) })
        }
        _ => {
            let places = found.iter().map(|entry| entry.place.to_owned()).collect();
            Err(LookUpError::Ambiguous { name, places, known: names(entries) })
        }
    }
}

/// The names, sorted, each once.
pub(crate) fn names(entries: &[Entry]) -> Vec<String> {
    let mut names: Vec<String> = entries.iter().map(|entry| (entry.name)().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

/// A number that is the same in each process of a program, and another one in another build of it.
///
/// Of the functions' names, types and places, and of where in their pages of memory some code lies, which does not depend
/// on where the program is loaded.
pub(crate) fn build(entries: &[Entry]) -> u64 {
    const IN_PAGE: usize = 0xfff;
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        ((entry.name)(), (entry.types)(), entry.place, entry.run as usize & IN_PAGE).hash(&mut hasher);
    }
    for code in [
        build as fn(&[Entry]) -> u64 as usize,
        worker::take_over as fn() as usize,
        names as fn(&[Entry]) -> Vec<String> as usize,
    ] {
        (code & IN_PAGE).hash(&mut hasher);
    }
    hasher.finish()
}

/// Why a worker does not run what it is to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssignmentError {
    #[error("{0}; the launcher is another build of this program")]
    LookUp(LookUpError),
    #[error("function `{name}` takes a `{here}` in this program, and the launcher has a `{launcher}` for it: it is another build of this program; {}", Known(.known))]
    Arguments { name: String, here: String, launcher: String, known: Vec<String> },
    #[error("function `{name}` returns a `{here}` in this program, and the launcher waits for a `{launcher}`: it is another build of this program; {}", Known(.known))]
    Value { name: String, here: String, launcher: String, known: Vec<String> },
    #[error("function `{name}` is not run: this program was replaced on disk while its launcher runs an earlier build of it; {}", Known(.known))]
    Build { name: String, known: Vec<String> },
}

/// The function of an assignment, if this program is the build that the assignment was made for.
pub(crate) fn assigned<'a>(entries: &'a [Entry], assignment: &Assignment) -> Result<&'a Entry, AssignmentError> {
    let name = assignment.function.clone();
    let entry = by_name(entries, &name).map_err(AssignmentError::LookUp)?;
    let [arguments, value] = (entry.types)();
    let known = names(entries);
    if arguments != assignment.arguments {
        let launcher = assignment.arguments.clone();
        return Err(AssignmentError::Arguments { name, here: arguments.to_owned(), launcher, known });
    }
    if value != assignment.value {
        let launcher = assignment.value.clone();
        return Err(AssignmentError::Value { name, here: value.to_owned(), launcher, known });
    }
    if build(entries) != assignment.build {
        return Err(AssignmentError::Build { name, known });
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIN: Entry = Entry {
        name: || "app::train",
        id: TypeId::of::<u8>,
        types: || ["u64", "()"],
        run: |_| Ok(()),
        place: "src/main.rs:7:1",
    };
    const SAMPLE: Entry = Entry { name: || "app::sample", place: "src/main.rs:9", ..TRAIN };

    fn assignment(entries: &[Entry]) -> Assignment {
        let build = build(entries);
        Assignment { function: "app::train".into(), arguments: "u64".into(), value: "()".into(), build }
    }

    fn refusal(entries: &[Entry], assignment: &Assignment) -> String {
        assigned(entries, assignment).unwrap_err().to_string()
    }

    #[test]
    fn a_function_is_found_by_its_name() {
        let entries = [SAMPLE, TRAIN];
        assert_eq!(assigned(&entries, &assignment(&entries)).unwrap().place, TRAIN.place);
    }

    #[test]
    fn a_name_that_is_unknown_or_not_the_only_one_is_refused_with_what_is_known() {
        let look_up = |entries: &[Entry], name| {
            look_up(entries, Identity { id: TypeId::of::<u8>(), name, is_wrapped: false }).map(|entry| entry.place)
        };
        assert_eq!(
            look_up(&[TRAIN, SAMPLE], "app::tain").unwrap_err().to_string(),
            "function `app::tain` is not registered: add `entrypoint!(tain);` beside it; \
             registered: `app::sample`, `app::train`"
        );
        assert!(look_up(&[], "f").unwrap_err().to_string().ends_with("no function is registered"));
        let again = Entry { place: "src/other.rs:3", ..TRAIN };
        assert_eq!(
            look_up(&[TRAIN, SAMPLE, again], "app::train").unwrap_err().to_string(),
            "function `app::train` is registered 2 times: in src/main.rs:7:1, src/other.rs:3; \
             registered: `app::sample`, `app::train`"
        );
    }

    #[test]
    fn a_function_that_only_has_the_name_of_a_registered_one_is_refused() {
        let other = Identity { id: TypeId::of::<u16>(), name: "app::train", is_wrapped: false };
        assert_eq!(
            look_up(&[TRAIN, SAMPLE], other).unwrap_err().to_string(),
            "function `app::train` is not registered, but another one of the same path is, at src/main.rs:7:1: name one of \
             the two otherwise"
        );
    }

    #[test]
    fn another_build_is_refused_with_what_differs() {
        let entries = [TRAIN, SAMPLE];
        let good = assignment(&entries);
        let text = refusal(&entries, &Assignment { function: "app::old".into(), ..good.clone() });
        assert!(text.contains("`app::old` is not registered") && text.contains("`app::sample`"), "{text}");
        let text = refusal(&entries, &Assignment { arguments: "(u64, f32)".into(), ..good.clone() });
        assert!(text.contains("takes a `u64` in this program, and the launcher has a `(u64, f32)`"), "{text}");
        let text = refusal(&entries, &Assignment { value: "f32".into(), ..good.clone() });
        assert!(text.contains("returns a `()` in this program, and the launcher waits for a `f32`"), "{text}");
        let text = refusal(&entries, &Assignment { build: good.build ^ 1, ..good });
        assert!(
            text.contains("replaced on disk") && text.contains("registered: `app::sample`, `app::train`"),
            "{text}"
        );
    }

    #[test]
    fn builds_differ_by_what_is_registered_and_where() {
        let moved = Entry { place: "src/main.rs:8", ..TRAIN };
        let changed = Entry { types: || ["u64", "u8"], ..TRAIN };
        let builds = [build(&[TRAIN]), build(&[moved]), build(&[changed]), build(&[TRAIN, SAMPLE])];
        for (at, this) in builds.iter().enumerate() {
            assert!(!builds[..at].contains(this), "{at}");
        }
        assert_eq!(build(&[TRAIN]), builds[0]);
    }
}
