//! Renews the leases of the running tasks, and claims the tasks of processes that have died.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline::server::WeakServer;
use tokio::time::Instant;

use super::Env;
use super::resume::{Resumed, resume};
use super::retry::Backoff;
use super::run::{Stop, TaskRun};
use super::store_errors::chain;
use crate::TaskId;
use crate::store::StoreError;

/// Keeps the leases of this process, takes over expired ones, and removes expired records, at a fixed interval.
pub(super) async fn keep_leases(env: &Env, server: &WeakServer) -> Infallible {
    let interval = env.options.renew_every;
    let mut backoff = None;
    let mut next_removal = Instant::now();
    loop {
        let kept = async {
            // First: an own lease that expired while the process was suspended is renewed, and not claimed.
            renew(env).await?;
            remove_expired(env, &mut next_removal).await?;
            claim(env, server).await
        };
        match kept.await {
            Ok(claimed) => {
                if backoff.take().is_some() {
                    tracing::info!("the task store is available again");
                }
                if claimed == Claimed::All {
                    tokio::time::sleep(interval).await;
                }
            }
            Err(error) => {
                if backoff.is_none() {
                    let error = chain(&error);
                    tracing::warn!(%error, "failed to renew the leases of tasks; trying again");
                }
                let backoff = backoff.get_or_insert_with(|| Backoff::new(interval));
                backoff.wait().await;
            }
        }
    }
}

/// Renews all leases of this process with one statement.
async fn renew(env: &Env) -> Result<(), StoreError> {
    let mut runs = env.runs.all();
    // A handler that was only signalled may run on for long, and must not keep others from taking its task over.
    runs.retain(|run| !run.has_given_up());
    if runs.is_empty() {
        return Ok(());
    }
    let held: Vec<_> = runs.iter().map(|run| run.held()).collect();
    let renewal = env.store.renew(env.owner, &held, env.options.lease).await?;
    for run in among(&runs, &renewal.lost) {
        run.stop(Stop::Lost);
    }
    for run in among(&runs, &renewal.changed) {
        match env.store.read(run.id).await? {
            Some(record) => run.deliver(record),
            None => run.stop(Stop::Lost),
        }
    }
    Ok(())
}

fn among<'a>(
    runs: &'a [Arc<TaskRun>],
    ids: &'a [TaskId],
) -> impl Iterator<Item = &'a Arc<TaskRun>> {
    let ids: BTreeSet<_> = ids.iter().copied().collect();
    runs.iter().filter(move |run| ids.contains(&run.id))
}

/// Whether tasks are left that this process can claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimed {
    All,
    /// The leases of this process must be renewed first.
    Some,
}

/// Takes over tasks whose lease has expired.
async fn claim(env: &Env, server: &WeakServer) -> Result<Claimed, StoreError> {
    let started = Instant::now();
    while !env.runs.is_draining() {
        let claimed = env
            .store
            .claim(env.owner, env.options.lease, MAX_CLAIMED)
            .await?;
        let count = claimed.len();
        let mut has_capacity = true;
        for record in claimed {
            match resume(env, server, record).await {
                Resumed::Yes => {}
                Resumed::Overloaded => has_capacity = false,
            }
        }
        // Others may have capacity; this process looks again after the interval.
        if count < MAX_CLAIMED || !has_capacity {
            break;
        }
        if started.elapsed() >= env.options.renew_every / 2 {
            return Ok(Claimed::Some);
        }
    }
    Ok(Claimed::All)
}

/// Removes records after their time, a bounded number at a time.
async fn remove_expired(env: &Env, next: &mut Instant) -> Result<(), StoreError> {
    if Instant::now() < *next {
        return Ok(());
    }
    let removed = env.store.remove_expired(MAX_REMOVED).await?;
    if removed < MAX_REMOVED {
        *next = Instant::now() + REMOVAL_INTERVAL;
    }
    Ok(())
}

/// How many tasks are claimed at once, so that several processes share those of one that died.
const MAX_CLAIMED: usize = 32;
const MAX_REMOVED: usize = 1000;
const REMOVAL_INTERVAL: Duration = Duration::from_secs(10);
