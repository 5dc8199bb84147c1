//! The background work of the extension: it owns the running handlers, keeps their leases, and takes in changes that
//! other processes made.
//!
//! The extension itself only has a queue to it: a handler refers to its server, and the server to the extension.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use bowline::server::{RunningTool, WeakServer};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Env;
use super::lease::keep_leases;
use super::run::{Stop, TaskRun, shown};
use super::run_task::{RunningTask, delete};
use super::runs::Discarded;
use super::store_errors::chain;
use crate::TaskId;
use crate::store::{ChangeHint, RunMode};

/// What the runner is told to do.
pub(super) enum Job {
    /// Runs a task.
    Start(RunningTask),
    /// Stops and deletes a task whose id the caller never got.
    Discard(TaskId),
    /// Lets a handler end that was signalled and whose outcome is not needed.
    Finish(RunningTool),
}

/// Runs tasks until the server shuts down and they have ended.
pub(super) async fn run(env: Arc<Env>, server: WeakServer, jobs: UnboundedReceiver<Job>) {
    tokio::select! {
        biased;
        () = run_jobs(&env, &server, jobs) => {}
        never = keep_leases(&env, &server) => match never {},
        never = follow_changes(&env) => match never {},
    }
}

async fn run_jobs(env: &Env, server: &WeakServer, mut jobs: UnboundedReceiver<Job>) {
    let mut running = JoinSet::new();
    let mut is_draining = false;
    let mut shutting_down = pin!(server.shutting_down());
    loop {
        tokio::select! {
            biased;
            () = &mut shutting_down, if !is_draining => {
                is_draining = true;
                drain(env);
            }
            // Cannot be `None`: `env` has a sender.
            Some(job) = jobs.recv() => {
                start(env, &mut running, job);
                if is_draining {
                    drain(env);
                }
            }
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the run of a task panicked");
                }
            }
        }
        if is_draining && running.is_empty() {
            // Later jobs are refused, and their senders delete the task. None that was sent before is lost.
            jobs.close();
            match jobs.recv().await {
                Some(job) => {
                    start(env, &mut running, job);
                    drain(env);
                }
                None => return,
            }
        }
    }
}

fn start(env: &Env, running: &mut JoinSet<()>, job: Job) {
    match job {
        Job::Start(task) => {
            running.spawn(task);
            env.runs.set_spawned();
        }
        Job::Discard(id) => {
            if let Some(run) = env.runs.get(id) {
                run.stop(Stop::Discard);
            }
            let (store, discarded) = (env.store.clone(), Discarded::new(env.runs.clone(), id));
            running.spawn(async move {
                let _discarded = discarded;
                delete(&*store, id).await;
            });
        }
        Job::Finish(tool) => {
            running.spawn(async move { drop(tool.await) });
        }
    }
}

/// Lets other processes take over the tasks that can be resumed. The others end here, within the grace period.
fn drain(env: &Env) {
    env.runs.start_draining();
    for run in env.runs.all() {
        if run.run_mode != RunMode::NotResumable {
            run.drain();
        }
    }
}

/// Reads the records of running tasks that were changed, for example by an answer that another process received.
///
/// Follows the changes of the store only while there are running tasks. Each hint wakes the runner, which costs more than
/// storing a short task, and a store of several processes looks for their changes only while it is followed.
async fn follow_changes(env: &Env) -> Infallible {
    loop {
        env.runs.spawned().await;
        let began = Instant::now();
        let mut changes = env.store.changes();
        // What was changed before has no hint.
        for run in env.runs.all() {
            read_changed(env, &run).await;
        }
        // Not after each task, because following again costs a read of each running one.
        while !env.runs.is_empty() || began.elapsed() < env.options.renew_every {
            let Some(hint) = changes.next().await else {
                // The store has no hints; renewals find changes.
                return std::future::pending().await;
            };
            let ChangeHint::Changed { id, version } = hint else {
                continue; // found by the next renewal
            };
            // The changes of this process are known already.
            let changed = env.runs.get(id);
            if let Some(run) = changed.filter(|run| run.held().version < version) {
                read_changed(env, &run).await;
            }
        }
    }
}

async fn read_changed(env: &Env, run: &TaskRun) {
    match env.store.read(run.id).await {
        Ok(Some(record)) => run.deliver(record),
        Ok(None) => run.stop(Stop::Lost),
        Err(error) => {
            let (task, error) = (shown(run.id), chain(&error));
            tracing::warn!(%task, %error, "failed to read a changed task");
        }
    }
}
