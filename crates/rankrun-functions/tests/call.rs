//! A function called in a process of its own, without a group: what goes over, and what is refused before a process starts.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]
#![forbid(unsafe_code)]

use rankrun_functions::{
    CallError, Function, FunctionCall, LookUpError, ReturnValue, ReturnValueError, ValueError, callable, entrypoint,
    returns_result,
};
use rankrun_process::{Child, Spawner, Stdio};
use rankrun_types::{ExitKind, PerRank};
use serde::{Deserialize, Serialize, Serializer};

/// Runs the call for this many ranks and collects what comes back.
fn run(call: &FunctionCall, n: usize) -> PerRank<Result<ReturnValue, String>> {
    let prepared = call.prepare(n).unwrap();
    let mut spawner = Spawner::new().unwrap();
    let mut started = Vec::new();
    for local_rank in 0..n {
        let (command, slot) = prepared.worker(local_rank).unwrap();
        // Nothing of this program's environment is needed.
        let command = command.envs([("LOCAL_RANK", local_rank.to_string())]).stderr(Stdio::Inherit);
        started.push((spawner.spawn(command).unwrap(), slot));
    }
    let ended = started.into_iter().map(|(mut child, slot): (Child, _)| {
        let exit = child.wait().unwrap().kind;
        slot.collect(exit).map_err(|missing| format!("{exit}{missing}"))
    });
    PerRank::from_vec(ended.collect())
}

fn returned<M, F: Function<M>>(function: F, call: &FunctionCall, n: usize) -> Vec<F::Value> {
    run(call, n).into_values().into_iter().map(|value| value.unwrap().take(function).unwrap()).collect()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Message {
    Text { text: String, more: Vec<Message> },
    Nothing,
}

fn echo(message: Message) -> Message {
    message
}
entrypoint!(echo);

fn square(n: u32) -> Result<u64, std::num::TryFromIntError> {
    assert_eq!(std::env::var("LOCAL_RANK").unwrap(), n.to_string(), "the environment is the worker's own");
    Ok(u64::from(u8::try_from(n * n)?))
}
entrypoint!(square);

fn nothing(_: ()) {}
entrypoint!(nothing);

fn doubled(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_within(..);
    bytes
}
entrypoint!(doubled);

fn last<T: Clone>(list: Vec<T>) -> Option<T> {
    list.last().cloned()
}
entrypoint!(last::<f32>);
entrypoint!(last::<String>);

#[test]
fn arguments_arrive_and_values_come_back() {
    let message = Message::Text { text: "a\0ü".to_owned(), more: vec![Message::Nothing; 3] };
    assert_eq!(returned(echo, &callable(echo).with(message.clone()), 1), [message]);
    assert_eq!(returned(square, &callable(square).by_rank(|local_rank| local_rank as u32), 3), [0, 1, 4]);
    assert_eq!(returned(nothing, &callable(nothing).with(()), 2), [(), ()]);
    assert_eq!(returned(last::<f32>, &callable(last::<f32>).with(vec![1.5, 2.5]), 1), [Some(2.5)]);
    assert_eq!(returned(last::<String>, &callable(last::<String>).with(vec![]), 1), [None]);
}

#[test]
fn bytes_of_any_number_go_over() {
    for len in [0, 1, 5_000, 40 << 20] {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let expected = [bytes.clone(), bytes.clone()].concat();
        assert!(returned(doubled, &callable(doubled).with(bytes), 1) == [expected], "{len}");
    }
}

#[test]
fn a_function_may_be_registered_where_it_is_used() {
    fn here(n: u8) -> u8 {
        n + 1
    }
    entrypoint!(here);
    assert_eq!(returned(here, &callable(here).with(1), 1), [2]);
}

#[test]
fn the_process_is_listed_under_the_programs_name() {
    fn names(_: ()) -> Result<(String, Vec<String>), std::io::Error> {
        Ok((std::fs::read_to_string("/proc/self/comm")?, std::env::args().collect()))
    }
    entrypoint!(names);
    let [(comm, args)] = &returned(names, &callable(names).with(()), 1)[..] else { panic!("one") };
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    assert!(program.starts_with(comm.trim_end()), "{comm:?} of {program}");
    // With musl the command line is not known before `main`.
    let expected: Vec<String> = std::env::args().take(usize::from(!cfg!(target_env = "musl"))).collect();
    assert_eq!(*args, expected);
}

#[test]
fn a_worker_has_no_descriptor_and_no_variable_of_ours_when_its_function_runs() {
    fn seen(_: ()) -> Result<(Vec<String>, Vec<String>), std::io::Error> {
        let fds = std::fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.file_name().into_string().unwrap());
        let fds = fds.collect();
        let mut child = std::process::Command::new("/bin/sh");
        let child = child.args(["-c", "echo /proc/self/fd/*; env"]).output()?;
        Ok((fds, String::from_utf8_lossy(&child.stdout).lines().map(str::to_owned).collect()))
    }
    entrypoint!(seen);
    let [(fds, child)] = &returned(seen, &callable(seen).with(()), 1)[..] else { panic!("one") };
    // The standard streams, where the value goes, and the directory that is being read.
    assert_eq!(fds.len(), 5, "{fds:?}");
    assert!(!child[0].contains("/4"), "{child:?}");
    assert!(!child.iter().any(|line| line.contains("RANKRUN")), "{child:?}");
}

#[test]
fn a_function_that_is_not_registered_is_refused_with_those_that_are() {
    fn not_listed(_: u64) {}
    let refused = callable(not_listed).with(1).prepare(1).unwrap_err();
    let CallError::LookUp(LookUpError::Unknown { name, known, .. }) = &refused else { panic!("{refused:?}") };
    assert!(name.ends_with("::not_listed") && known.iter().any(|name| name == "call::square"), "{refused}");
    assert!(refused.to_string().contains("add `entrypoint!(not_listed);` beside it; registered: `"), "{refused}");
}

mod twice {
    pub(super) fn twice(_: ()) {}
    rankrun_functions::entrypoint!(twice);
    rankrun_functions::entrypoint!(twice);
}

#[test]
fn a_function_that_is_registered_twice_is_refused_with_the_places() {
    let refused = callable(twice::twice).with(()).prepare(1).unwrap_err();
    let CallError::LookUp(LookUpError::Ambiguous { places, .. }) = &refused else { panic!("{refused:?}") };
    assert!(places.len() == 2 && places[0] != places[1], "{refused}");
    let is_exact = |place: &String| place.contains("call.rs:") && place.split(':').count() == 3;
    assert!(places.iter().all(is_exact), "file, line and column: {refused}");
    assert!(refused.to_string().contains("is registered 2 times: in "), "{refused}");
}

#[test]
fn a_function_in_another_block_with_the_same_path_is_refused() {
    let registered = {
        fn twin(_: ()) -> u8 {
            1
        }
        entrypoint!(twin);
        assert_eq!(returned(twin, &callable(twin).with(()), 1), [1]);
        run(&callable(twin).with(()), 1)
    };
    fn twin(_: ()) -> u8 {
        2
    }
    {
        fn twin(_: ()) -> u8 {
            3
        }
        let refused = callable(twin).with(()).prepare(1).unwrap_err();
        let CallError::LookUp(LookUpError::OtherOfThatName { name, place }) = &refused else { panic!("{refused:?}") };
        assert!(name.ends_with("::twin") && place.contains("call.rs:"), "{refused}");
        let Ok(value) = &registered[0] else { panic!("{registered:?}") };
        let text = value.get(twin).unwrap_err().to_string();
        assert!(text.contains(", not another function of the same path, `"), "{text}");
    }
    assert!(callable(twin).with(()).prepare(1).is_err());
    assert_eq!(twin(()), 2);
}

#[test]
fn the_advice_for_a_function_that_returns_a_result_is_what_compiles() {
    fn half(n: u64) -> Result<u64, String> {
        if n.is_multiple_of(2) { Ok(n / 2) } else { Err(format!("{n} is odd")) }
    }
    let text = callable(returns_result(half)).with(1).prepare(1).unwrap_err().to_string();
    assert!(text.contains("add `entrypoint!(returns_result(half));` beside it"), "{text}");
    let text = callable(|n: u64| n).with(1).prepare(1).unwrap_err().to_string();
    assert!(text.contains("make a `fn` with a name of the closure"), "{text}");
}

#[derive(Serialize, Deserialize)]
struct Picky(#[serde(serialize_with = "pick")] usize);

fn pick<S: Serializer>(number: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        3 => panic!("a lock is poisoned"),
        2 => Err(serde::ser::Error::custom("2 is not to be had")),
        other => serializer.serialize_u64(*other as u64),
    }
}

fn picky(_: Picky) {}
entrypoint!(picky);

#[test]
fn arguments_that_cannot_be_encoded_are_refused_with_the_rank() {
    let text = |call: FunctionCall| call.prepare(4).unwrap_err().to_string();
    assert_eq!(
        text(callable(picky).by_rank(Picky)),
        "local rank 2: the arguments of `call::picky` cannot be encoded: 2 is not to be had"
    );
    assert_eq!(
        text(callable(picky).with(Picky(2))),
        "all local ranks: the arguments of `call::picky` cannot be encoded: 2 is not to be had"
    );
}

#[test]
fn arguments_whose_code_panics_are_refused_with_the_rank() {
    let refused = callable(picky).by_rank(|local_rank| Picky(10 - local_rank)).prepare(9).unwrap_err();
    let CallError::Arguments { local_rank: Some(7), why, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(*why, ValueError::Panicked { message: "a lock is poisoned".to_owned() });
    let make = |local_rank| if local_rank == 1 { panic!("no shard {local_rank}") } else { Picky(1) };
    assert_eq!(
        callable(picky).by_rank(make).prepare(2).unwrap_err().to_string(),
        "local rank 1: the arguments of `call::picky` cannot be encoded: its code panicked: no shard 1"
    );
}

#[test]
fn what_cannot_be_brought_back_is_refused_on_both_sides() {
    fn options(_: Option<Option<u8>>) -> Option<()> {
        Some(())
    }
    entrypoint!(options);
    let refused = callable(options).with(Some(None)).prepare(1).unwrap_err();
    assert!(matches!(refused, CallError::Arguments { why: ValueError::SomeOfNothing, .. }), "{refused:?}");
    let ended = run(&callable(options).with(None), 1);
    assert_eq!(
        ended[0].as_ref().unwrap_err(),
        "exit code 1 while it wrote the return value of `call::what_cannot_be_brought_back_is_refused_on_both_sides::options`"
    );

    #[derive(Serialize, Deserialize)]
    enum List {
        End,
        Cell(Box<List>),
    }
    fn lists(n: usize) -> List {
        (0..n).fold(List::End, |list, _| List::Cell(Box::new(list)))
    }
    entrypoint!(lists);
    fn takes(_: List) {}
    entrypoint!(takes);
    let refused = callable(takes).with(lists(1025)).prepare(1).unwrap_err();
    assert!(refused.to_string().ends_with("cannot be encoded: it is nested deeper than 1024 levels"), "{refused}");
    let values = run(&callable(lists).by_rank(|local_rank| 1024 + local_rank), 2);
    assert_eq!(values.iter().map(|(_, value)| value.is_ok()).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_value_is_the_type_of_its_function_only() {
    let values = run(&callable(square).with(0), 1);
    let Ok(value) = &values[0] else { panic!("{values:?}") };
    assert_eq!(value.get(square), Ok(0));
    let other = value.get(nothing).unwrap_err();
    assert_eq!(other, ReturnValueError::OtherFunction { asked: "call::nothing".into(), ran: "call::square".into() });
}

#[test]
fn what_is_missing_is_said() {
    fn leave(code: i32) {
        std::process::exit(code)
    }
    entrypoint!(leave);
    let name = leave.name();
    for (code, text) in
        [(0, format!("exit code 0 without returning a value from `{name}`")), (7, "exit code 7".to_owned())]
    {
        let ended = run(&callable(leave).with(code), 1);
        assert_eq!(ended[0].as_ref().unwrap_err(), &text);
    }
    let ended = run(&callable(square).with(9), 1);
    assert_eq!(ended[0].as_ref().unwrap_err(), &ExitKind::Code(101).to_string(), "it panics");
}
