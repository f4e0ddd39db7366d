//! Signals to the launcher while it runs attempts, pauses between them, and after the last one.
//!
//! Signals are watched by one at a time in a program, and sent to all of it: so it is one test.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal as NixSignal, raise};
use rankrun::{RunState, Signal, SignalPlan};
use rankrun_launcher::{
    Attempt, Backoff, Decision, Launch, Observer, Outcome, RestartPolicy, Started, Surroundings, Topology, Verdict,
};

/// Sends the signal at a moment of the first attempt.
#[derive(Default)]
struct Sender {
    when_started: bool,
    when_ended: bool,
}

impl Observer for Sender {
    fn started(&mut self, _started: &Started<'_>) {
        if std::mem::take(&mut self.when_started) {
            raise(NixSignal::SIGUSR1).unwrap();
        }
    }

    fn ended(&mut self, _attempt: &Attempt, _next: &Decision) {
        if std::mem::take(&mut self.when_ended) {
            raise(NixSignal::SIGUSR1).unwrap();
        }
    }
}

fn run(script: &str, mut sender: Sender) -> Outcome {
    let hour = Duration::from_secs(3600);
    let policy =
        RestartPolicy { max_restarts: 3, backoff: Backoff { first: hour, most: hour }, ..RestartPolicy::default() };
    let launch = Launch::new("test", "sh", Topology::one_node(1)).args(["-c", script]).restart(policy);
    let launch = launch.signals(SignalPlan::default().stop([Signal::USR1]));
    launch.plan(&Surroundings::of_this_process()).unwrap().run(&mut sender).unwrap()
}

#[test]
fn a_stop_signal_ends_the_restarting_whenever_it_comes() {
    let began = Instant::now();
    // While the workers run; they end of it.
    let outcome = run("exec sleep 600", Sender { when_started: true, ..Sender::default() });
    assert_eq!((outcome.verdict, outcome.signal), (Verdict::Stopped, Some(Signal::USR1)));
    assert_eq!((outcome.attempts.len(), outcome.last().result.state), (1, RunState::Stopped));
    drop(outcome);

    // In the pause, which is then over.
    let outcome = run("exit 1", Sender { when_ended: true, ..Sender::default() });
    let verdict = Verdict::Interrupted { signal: Signal::USR1 };
    assert_eq!((outcome.verdict, outcome.signal, outcome.attempts.len()), (verdict, Some(Signal::USR1), 1));
    drop(outcome);

    // When all is over: it is told of, and ends nothing as long as somebody watches.
    let outcome = run("exit 0", Sender::default());
    assert_eq!(outcome.watch.late_signal(), None);
    raise(NixSignal::SIGUSR1).unwrap();
    assert_eq!((outcome.watch.late_signal(), outcome.verdict), (Some(Signal::USR1), Verdict::Succeeded));
    assert!(began.elapsed() < Duration::from_secs(60));
}
