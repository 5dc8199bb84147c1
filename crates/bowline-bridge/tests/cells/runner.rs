//! Runs checks, each in a runtime of its own, on several threads.

use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::checks::{Check, Ends};
use crate::endpoint::Endpoint;
use crate::front::{self, FrontClient, Inbox, LegacyClient, ModernClient};
use crate::middle::Middle;
use crate::upstream::{Fault, RawServer, UpstreamServer};

/// One check in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) front: Endpoint,
    pub(crate) upstream: Endpoint,
    pub(crate) check: Check,
}

/// A job and its result: the error says what happened.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) job: Job,
    pub(crate) result: Result<(), String>,
    /// How long a cancel took.
    pub(crate) cancel_time: Option<Duration>,
}

impl Job {
    /// Every check of every cell whose endpoints the middle joins.
    pub(crate) fn all(middle: &impl Middle) -> Vec<Self> {
        let mut jobs = Vec::new();
        for front in Endpoint::all() {
            for upstream in Endpoint::all().filter(|upstream| middle.joins(front, *upstream)) {
                let checks = Check::ALL.into_iter();
                jobs.extend(checks.map(|check| Self {
                    front,
                    upstream,
                    check,
                }));
            }
        }
        jobs
    }
}

/// Runs every check of every cell that the middle joins, and whose name contains the text in `CELLS`.
pub(crate) fn run_all(middle: &impl Middle) -> Vec<Ran> {
    let mut jobs = Job::all(middle);
    if let Some(text) = selection() {
        jobs.retain(|job| job.to_string().contains(&text));
    }
    run(middle, jobs, |_| None, DEADLINE, THREADS)
}

/// Runs every cancel one after the other, so that the times are those of the middle and not those of other checks.
pub(crate) fn run_cancels(middle: &impl Middle) -> Vec<Ran> {
    let mut jobs = Job::all(middle);
    jobs.retain(|job| job.check == Check::Cancel);
    run(middle, jobs, |_| None, DEADLINE, 1)
}

/// Runs jobs that are expected to fail, so most of them wait for their deadline, which is shorter.
pub(crate) fn run_faulty(
    middle: &impl Middle,
    jobs: Vec<Job>,
    fault: impl Fn(Job) -> Option<Fault> + Sync,
) -> Vec<Ran> {
    run(middle, jobs, fault, Duration::from_secs(1), THREADS)
}

/// The text that selects cells; `None` if all are to be run.
pub(crate) fn selection() -> Option<String> {
    std::env::var("CELLS").ok()
}

/// A check that takes longer has failed; on an idle machine it takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// More than there are processors: a check that fails mostly waits for its deadline.
const THREADS: usize = 16;

fn run(
    middle: &impl Middle,
    jobs: Vec<Job>,
    fault: impl Fn(Job) -> Option<Fault> + Sync,
    deadline: Duration,
    threads: usize,
) -> Vec<Ran> {
    let (queue, ran) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(Vec::new()));
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front()
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let one = run_alone(middle, job, fault(job), deadline);
                    let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
                    ran.push(Ran {
                        job,
                        cancel_time: one.as_ref().ok().copied().flatten(),
                        result: one.map(drop),
                    });
                }
            });
        }
    });
    ran.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_alone(
    middle: &impl Middle,
    job: Job,
    fault: Option<Fault>,
    deadline: Duration,
) -> Result<Option<Duration>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("failed to start a runtime: {error}"))?;
    runtime.block_on(async {
        let upstream = RawServer::start(job.upstream, fault).await?;
        let running = tokio::time::timeout(deadline, run_job(middle, job, &upstream));
        let result = running
            .await
            .unwrap_or_else(|_| Err(format!("not done within {deadline:?}")));
        result.map_err(|error| with_record(error, &upstream))
    })
}

/// Runs a job; returns the time that a cancel took.
async fn run_job(
    middle: &impl Middle,
    job: Job,
    upstream: &RawServer,
) -> Result<Option<Duration>, String> {
    let joined = middle.join(job.front, job.upstream, upstream.address());
    let joined = joined.await?;
    let wire = front::connect(job.front, joined.front).await?;
    let inbox = Inbox::new(job.front, wire);
    let capabilities = job.check.capabilities();
    match job.front.revision.is_modern() {
        true => run_with(ModernClient::new(inbox, capabilities), job, upstream).await,
        false => run_with(LegacyClient::new(inbox, capabilities), job, upstream).await,
    }
}

async fn run_with(
    front: impl FrontClient,
    job: Job,
    upstream: &RawServer,
) -> Result<Option<Duration>, String> {
    let mut ends = Ends {
        cancel_time: None,
        front,
        front_endpoint: job.front,
        upstream,
        upstream_endpoint: job.upstream,
    };
    job.check.run(&mut ends).await?;
    Ok(ends.cancel_time)
}

/// Adds what the upstream saw to an error.
fn with_record(error: String, upstream: &RawServer) -> String {
    let mut text = error;
    for seen in upstream.record().entries() {
        let _ = write!(text, "\n    upstream {}: {:?}", seen.connection, seen.event);
    }
    text
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            front,
            upstream,
            check,
        } = self;
        write!(f, "{front} > {upstream}: {}", check.name())
    }
}
