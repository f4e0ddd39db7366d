//! Monte-Carlo pi: four workers throw points at a square and count those that hit the circle in it.

use rankrun::{ChildFailedError, Entrypoint, WorkerGroup, entrypoint, start_processes};

fn throw((seed, points): (u64, u64)) -> u64 {
    let mut state = seed;
    let mut coordinate = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    (0..points).filter(|_| coordinate().powi(2) + coordinate().powi(2) < 1.0).count() as u64
}
entrypoint!(throw);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    rankrun::init();
    let points = 2_000_000;
    let throws = Entrypoint::function(throw).by_rank(move |local_rank| (local_rank as u64, points));
    let result = start_processes(WorkerGroup::new("pi", throws, 4))?.wait(None)?.expect("no timeout");
    if result.is_failed() {
        return Err(ChildFailedError::new("pi", result.failures.clone())?.into());
    }
    let hits: u64 = result.return_values_of(throw)?.values().iter().flatten().sum();
    println!("pi is about {:.4}", hits as f64 / points as f64);
    Ok(())
}
