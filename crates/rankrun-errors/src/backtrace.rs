//! The text of a panic's backtrace without what lies around the program's own frames. Pure. Not here: capturing one
//! (`panics`).

/// What std puts around the program's own frames: the panic's machinery is called by the first, a thread's or the
/// program's beginning calls the second.
const END: &str = "__rust_end_short_backtrace";
const BEGIN: &str = "__rust_begin_short_backtrace";

/// The frames from the panic to the program's or thread's first function, numbered anew; all of them if they have no names.
pub(crate) fn shortened(backtrace: &str) -> String {
    let frames = frames(backtrace);
    let Some(end) = frames.iter().position(|(name, _)| name.contains(END)) else { return backtrace.to_owned() };
    let own = &frames[end + 1..];
    let own = &own[own.iter().position(|(name, _)| !is_machinery(name)).unwrap_or(0)..];
    let own = &own[..own.iter().position(|(name, _)| name.contains(BEGIN)).unwrap_or(own.len())];
    let mut text = String::new();
    for (number, (name, places)) in own.iter().enumerate() {
        text.push_str(&format!("{number:4}: {name}\n"));
        for place in places {
            text.push_str(place);
            text.push('\n');
        }
    }
    text
}

fn is_machinery(name: &str) -> bool {
    name.contains("rust_begin_unwind") || name.starts_with("core::panicking::")
}

/// The names, in the order of the text, each with the lines of its place.
fn frames(backtrace: &str) -> Vec<(&str, Vec<&str>)> {
    let mut frames: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in backtrace.lines() {
        let text = line.trim_start();
        match frames.last_mut() {
            Some((_, places)) if text.starts_with("at ") => places.push(line),
            _ => {
                // A function that was inlined into the one below it has no number.
                let numbered = text.split_once(": ").filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()));
                frames.push((numbered.map_or(text, |(_, name)| name), Vec::new()));
            }
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "   0: hook::note
             at /src/hook.rs:5:9
   1: std::sys::backtrace::__rust_end_short_backtrace
             at /rustc/x.rs:1:1
   2: __rustc::rust_begin_unwind
   3: core::panicking::panic_fmt
   4: app::inlined
             at ./main.rs:3:5
      app::train
             at ./main.rs:7:5
   5: app::main
   6: std::sys::backtrace::__rust_begin_short_backtrace
   7: main
";

    #[test]
    fn frames_go_from_the_panic_to_the_programs_own_beginning() {
        let expected = "   0: app::inlined
             at ./main.rs:3:5
   1: app::train
             at ./main.rs:7:5
   2: app::main
";
        assert_eq!(shortened(WHOLE), expected);
        // A worker whose function is taken before `main` has no beginning that std knows of.
        let without_end = WHOLE.split_once("   6: ").unwrap().0;
        assert_eq!(shortened(without_end), expected);
    }

    #[test]
    fn frames_without_names_are_all_there() {
        for text in ["", "   0: <unknown>\n   1: <unknown>\n", "unsupported backtrace"] {
            assert_eq!(shortened(text), text);
        }
    }
}
