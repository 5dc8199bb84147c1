//! Runs the schedules of seeds: each to its end, on one thread, with a paused clock.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tokio::runtime::Runtime;

use crate::schedule_log::ScheduleLog;
use crate::seeded_random::SeededRandom;

/// The result of the schedule of one seed.
pub(crate) struct ScheduleResult {
    pub(crate) trace: Vec<String>,
    violations: Vec<String>,
}

thread_local! {
    /// The number of panics on this thread, including those in tasks, which the runtime catches.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            report(panic);
        }));
    });
}

/// Creates the runtime of a schedule.
pub(crate) fn runtime(random: &SeededRandom) -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // The number of tasks that are polled between two steps of the schedule.
        .event_interval(*random.pick(&[1, 2, 5, 61]))
        .build()
        .unwrap()
}

/// Runs a schedule, and drops its runtime.
pub(crate) fn run_to_end(
    runtime: Runtime,
    log: &ScheduleLog,
    schedule: impl Future<Output = ()>,
) -> ScheduleResult {
    count_panics();
    let panics = PANICS.get();
    let finished = catch_unwind(AssertUnwindSafe(|| runtime.block_on(schedule)));
    drop(runtime);
    let mut violations = log.violations();
    if finished.is_err() || PANICS.get() > panics {
        violations.push("nothing panics".to_owned());
    }
    ScheduleResult {
        trace: log.trace(),
        violations,
    }
}

/// The schedules of one hunter.
pub(crate) struct Hunt {
    /// Returns the name of the scene of a seed. Consecutive seeds belong to consecutive scenes.
    pub(crate) scene: fn(u64) -> &'static str,
    /// The number of scenes.
    pub(crate) scenes: usize,
    /// Runs a seed, with a trace or without.
    pub(crate) run: fn(u64, bool) -> ScheduleResult,
    /// The command that repeats a seed.
    pub(crate) command: &'static str,
}

impl Hunt {
    /// Runs this many seeds of a scene, up to the first violation.
    pub(crate) fn run_scene(&self, scene: &str, schedules: usize) {
        let mut all = 0..self.scenes as u64;
        let first = all.find(|seed| (self.scene)(*seed) == scene).unwrap();
        for seed in (first..).step_by(self.scenes).take(schedules) {
            if let Some(report) = self.run_and_report(seed) {
                panic!("{report}");
            }
        }
    }

    /// Runs a seed; if it violates invariants, runs it again with a trace and returns the report.
    fn run_and_report(&self, seed: u64) -> Option<String> {
        let ScheduleResult { violations, .. } = (self.run)(seed, false);
        if violations.is_empty() {
            return None;
        }
        let trace = (self.run)(seed, true).trace;
        Some(format!(
            "\n{}\n\nseed {seed}, scene {}, violates:\n  {}\n\nto repeat it: {} --from {seed} --seeds 1\n",
            trace.join("\n"),
            (self.scene)(seed),
            violations.join("\n  "),
            self.command,
        ))
    }

    /// Runs the seeds that the environment variables of `cargo xtask hunt` select. Without them it runs one seed of
    /// each scene.
    pub(crate) fn run_selected(&self) {
        let variable = |name: &str| std::env::var(name).ok();
        let number = |name: &str| variable(name).map(|text| text.parse::<u64>().unwrap());
        let from = number("BOWLINE_HUNT_FROM").unwrap_or(2_000_000);
        let end = from + number("BOWLINE_HUNT_SEEDS").unwrap_or(self.scenes as u64);
        let queue = SeedQueue {
            hunt: self,
            next: AtomicU64::new(from),
            end,
            scenes: variable("BOWLINE_HUNT_SCENES"),
            max_failed: number("BOWLINE_HUNT_MAX_BROKEN").unwrap_or(1),
            failed: AtomicU64::new(0),
            finished: AtomicU64::new(0),
        };
        if let Some(scenes) = &queue.scenes {
            let is_known = |name: &str| (0..self.scenes as u64).any(|it| (self.scene)(it) == name);
            let unknown = scenes.split(',').find(|name| !is_known(name));
            assert_eq!(unknown, None, "unknown scene");
        }
        let started = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| queue.run());
            }
        });
        let finished = queue.finished.into_inner();
        let seconds = started.elapsed().as_secs_f64();
        let failed = queue.failed.into_inner();
        eprintln!(
            "{finished} schedules in {seconds:.1} s on {threads} threads, {:.0} a second; {failed} violate an invariant",
            finished as f64 / seconds
        );
        assert_eq!(failed, 0, "seeds that violate an invariant");
        if end - from == 1 {
            eprintln!("{}", (self.run)(from, true).trace.join("\n"));
        }
    }
}

/// Distributes seeds among threads.
struct SeedQueue<'a> {
    hunt: &'a Hunt,
    next: AtomicU64,
    end: u64,
    /// Names of scenes, separated by commas.
    scenes: Option<String>,
    max_failed: u64,
    failed: AtomicU64,
    finished: AtomicU64,
}

impl SeedQueue<'_> {
    /// Runs seeds until the queue is empty or `max_failed` of them have violated an invariant.
    fn run(&self) {
        while self.failed.load(Relaxed) < self.max_failed {
            let seed = self.next.fetch_add(1, Relaxed);
            if seed >= self.end {
                return;
            }
            if !self.is_selected(seed) {
                continue;
            }
            if let Some(report) = self.hunt.run_and_report(seed) {
                self.failed.fetch_add(1, Relaxed);
                eprintln!("{report}");
            }
            let finished = self.finished.fetch_add(1, Relaxed) + 1;
            if finished.is_multiple_of(REPORT_INTERVAL) {
                eprintln!("{finished} schedules finished, up to seed {seed}");
            }
        }
    }

    fn is_selected(&self, seed: u64) -> bool {
        let Some(scenes) = &self.scenes else {
            return true;
        };
        scenes
            .split(',')
            .any(|name| name == (self.hunt.scene)(seed))
    }
}

/// The number of schedules between two progress lines.
const REPORT_INTERVAL: u64 = 10_000;
