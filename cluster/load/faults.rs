//! Faults under load: calls, subscriptions and tasks of legacy and modern clients, while something breaks.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster_tests::Engine;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clients::{LEGACY, MODERN, connect, connect_all, start_calls};
use crate::engine_faults::{self, FilledEngine};
use crate::fleet::Fleet;
use crate::notices::start_notices;
use crate::options::Options;
use crate::tally::{Counts, Tally};
use crate::task_load::start_tasks;

/// Something that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// For comparison.
    None,
    ReplicaKilled,
    ProxyRestarted,
    EngineRestarted,
    EngineCut,
    EngineSlow,
    EngineFull,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::None,
        Self::ReplicaKilled,
        Self::ProxyRestarted,
        Self::EngineRestarted,
        Self::EngineCut,
        Self::EngineSlow,
        Self::EngineFull,
    ];

    fn name(self, engine: Engine) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReplicaKilled => "a replica killed and started again",
            Self::ProxyRestarted => "the proxy restarted",
            Self::EngineRestarted => "the engine killed and started again",
            Self::EngineCut => "the engine cut off for 10 s",
            Self::EngineSlow => "the engine slowed to 1 s, for 10 s",
            Self::EngineFull => FilledEngine::how(engine),
        }
    }

    /// Breaks something, and mends it.
    async fn happen(self, fleet: &mut Fleet, options: &Options) -> Result<(), Box<dyn Error>> {
        match self {
            Self::None => sleep(CALM).await,
            Self::ReplicaKilled => fleet.crash(1).await?,
            Self::ProxyRestarted => fleet.restart_proxy().await?,
            Self::EngineRestarted => engine_faults::restart(options).await?,
            Self::EngineCut => {
                fleet.engine_link.cut();
                sleep(OUTAGE).await;
                fleet.engine_link.restore();
            }
            Self::EngineSlow => {
                // Half of it in each direction.
                fleet.engine_link.slow(SLOWNESS / 2);
                sleep(OUTAGE).await;
                fleet.engine_link.restore();
            }
            Self::EngineFull => {
                let filled = FilledEngine::fill(options).await?;
                sleep(CALM).await;
                filled.empty().await?;
            }
        }
        Ok(())
    }
}

/// Runs every fault; returns whether nothing was crossed, lost or late.
pub(crate) async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let mut is_sound = true;
    for fault in Fault::ALL {
        let name = fault.name(options.engine);
        match run_fault(options, fault).await {
            Ok(counts) => {
                println!("{}", row(options.engine, name, &counts));
                counts.print_errors();
                is_sound &= counts.is_sound();
            }
            Err(error) => {
                println!("FAILED {}: {name}: {error}", options.engine.name());
                is_sound = false;
            }
        }
    }
    Ok(is_sound)
}

/// Runs one fault with new replicas, so that each row stands alone.
async fn run_fault(options: &Options, fault: Fault) -> Result<Counts, Box<dyn Error>> {
    let mut fleet = Fleet::start(options, 3).await?;
    let (url, tally) = (fleet.url(), Arc::new(Tally::default()));
    let mut load = JoinSet::new();
    let versions = [(MODERN, 10), (LEGACY[0], 4), (LEGACY[1], 3), (LEGACY[2], 3)];
    let callers = connect_all(&url, &versions).await?;
    start_calls(&mut load, callers, CALL_EVERY, &tally);
    for (nth, version) in [MODERN, LEGACY[0], MODERN, LEGACY[1]]
        .into_iter()
        .enumerate()
    {
        let pair = (connect(&url, version).await?, connect(&url, version).await?);
        start_notices(&mut load, pair, &nth.to_string(), NOTICE_EVERY, &tally);
    }
    let is_stopping = Arc::new(AtomicBool::new(false));
    if options.engine.has_tasks() {
        let clients = connect_all(&url, &[(MODERN, 4)]).await?;
        start_tasks(&mut load, clients, TASK_EVERY, &tally, &is_stopping);
    }
    sleep(CALM).await;
    fault.happen(&mut fleet, options).await?;
    sleep(RECOVERY).await;
    is_stopping.store(true, Ordering::Relaxed);
    let pending = settle(&tally).await;
    load.shutdown().await;
    let mut counts = tally.take();
    counts.lost_tasks += pending;
    Ok(counts)
}

/// Waits until the tasks that were created have ended; returns how many have not.
async fn settle(tally: &Tally) -> u64 {
    let mut pending = 0;
    for _ in 0..SETTLE_STEPS {
        // No task is being created after the first of these.
        sleep(SETTLE_EVERY).await;
        tally.change(|counts| {
            pending = counts.tasks - counts.completed - counts.lost_tasks;
        });
        if pending == 0 {
            break;
        }
    }
    pending
}

fn row(engine: Engine, fault: &str, counts: &Counts) -> String {
    let Counts {
        calls,
        failed_calls,
        crossed,
        overdue,
        longest,
        notices,
        delivered,
        missed,
        lost_notices,
        tasks,
        completed,
        lost_tasks,
        ..
    } = counts;
    let tasks = match engine.has_tasks() {
        true => format!("{tasks} | {completed} | {lost_tasks}"),
        false => "– | – | –".to_owned(),
    };
    let longest = longest.as_secs_f64();
    format!(
        "| {} | {fault} | {calls} | {failed_calls} | {crossed} | {overdue} | {longest:.1} s \
         | {notices} | {delivered} | {missed} | {lost_notices} | {tasks} |",
        engine.name()
    )
}

const CALL_EVERY: Duration = Duration::from_millis(100);
const NOTICE_EVERY: Duration = Duration::from_millis(200);
const TASK_EVERY: Duration = Duration::from_millis(500);
const CALM: Duration = Duration::from_secs(3);
const OUTAGE: Duration = Duration::from_secs(10);
const SLOWNESS: Duration = Duration::from_secs(1);
const RECOVERY: Duration = Duration::from_secs(8);
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// Longer than what a task is waited for.
const SETTLE_STEPS: usize = 80;
