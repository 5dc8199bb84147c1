//! `bowline bridge`: connects clients to a server that has another transport or another protocol version.
//!
//! Stdout belongs to the protocol if the front is stdio, so everything for people goes to stderr.

#[cfg(feature = "cluster")]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "cluster_disabled.rs"]
mod cluster;

mod cluster_plan;

mod configured;

mod front;

mod options;
pub(crate) use options::{BridgeOptions, BridgePlan};

mod pins;

mod signals;

mod state_key;

mod upstream;

use bowline::telemetry::Telemetry;
use bowline_bridge::{Bridge, BridgeBuilder, Target, credentials};

use crate::child_stderr::StderrWriter;
use crate::log::log_service_to_stderr;
use crate::telemetry::Exporters;
use options::{BridgeLimits, UpstreamPlan};
use signals::Signals;

/// An error for the user, with its causes.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs the bridge until a signal, or until stdin ends if the front is stdio.
pub(crate) async fn run(plan: BridgePlan) -> Result<(), BoxError> {
    log_service_to_stderr(plan.verbosity);
    if let UpstreamPlan::Config {
        file,
        pins: Some(pins),
        ..
    } = &plan.upstream
    {
        return pins.run(file);
    }
    let exporters = plan.telemetry.start("bowline-bridge").await?;
    let signals = Signals::start();
    let telemetry = exporters.as_ref().map(Exporters::telemetry);
    let served = serve(plan, telemetry, &signals).await;
    if let Some(exporters) = exporters {
        signals.until_second(exporters.shut_down()).await;
    }
    served
}

async fn serve(
    plan: BridgePlan,
    telemetry: Option<Telemetry>,
    signals: &Signals,
) -> Result<(), BoxError> {
    let child_stderr = StderrWriter::start();
    let (bridge, served) = match &plan.upstream {
        UpstreamPlan::Config { file, sign_in, .. } => {
            let (bridge, config) = configured::bridge(file, sign_in, &child_stderr)?;
            let bridge = clustered(observed(bridge, telemetry), &plan, signals).await?;
            let guard = credentials::guard(&config)?;
            let settings = config.settings();
            let front = configured::front(plan.front, plan.is_front_chosen, settings);
            let served = tokio::select! {
                served = front::serve(&bridge, &front, plan.drain, guard, signals) => served,
                () = configured::reload_at_hangup(&bridge, file, &config) => Ok(()),
            };
            (bridge, served)
        }
        UpstreamPlan::Command(command) => {
            let target = upstream::command_target(command.clone(), child_stderr.clone());
            serve_one(target, &plan, telemetry, signals).await?
        }
        UpstreamPlan::Url(url) => {
            serve_one(upstream::url_target(url), &plan, telemetry, signals).await?
        }
    };
    signals.until_second(bridge.close()).await;
    child_stderr.flush();
    served
}

async fn serve_one(
    target: Target,
    plan: &BridgePlan,
    telemetry: Option<Telemetry>,
    signals: &Signals,
) -> Result<(Bridge, Result<(), BoxError>), BoxError> {
    let mut builder = with_limits(Bridge::builder(target), &plan.limits);
    if let Some(key) = &plan.state_key {
        builder = builder.sealer(key.sealer()?);
    }
    let bridge = builder.build();
    let bridge = clustered(observed(bridge, telemetry), plan, signals).await?;
    let served = front::serve(&bridge, &plan.front, plan.drain, None, signals).await;
    Ok((bridge, served))
}

/// Joins the cluster of the options, if they name one.
async fn clustered(
    bridge: Bridge,
    plan: &BridgePlan,
    signals: &Signals,
) -> Result<Bridge, BoxError> {
    let Some(cluster) = &plan.cluster else {
        return Ok(bridge);
    };
    let joined = tokio::select! {
        biased; // the signal first: the engine may not respond for long
        () = signals.first() => return Err("ended by a signal while it joined the cluster".into()),
        joined = cluster::connect(cluster) => joined?,
    };
    Ok(bridge.cluster_named(&cluster.name, joined))
}

fn observed(bridge: Bridge, telemetry: Option<Telemetry>) -> Bridge {
    match telemetry {
        Some(telemetry) => bridge.telemetry(telemetry),
        None => bridge,
    }
}

fn with_limits(mut builder: BridgeBuilder, limits: &BridgeLimits) -> BridgeBuilder {
    if let Some(max) = limits.max_connections {
        builder = builder.max_connections(max);
    }
    if let Some(max) = limits.max_connections_each {
        builder = builder.max_connections_each(max);
    }
    if let Some(max) = limits.max_principal_connections {
        builder = builder.max_principal_connections(max);
    }
    if let Some(timeout) = limits.idle_timeout {
        builder = builder.idle_timeout(timeout);
    }
    if let Some(timeout) = limits.legacy_timeout {
        builder = builder.legacy_timeout(timeout);
    }
    if let Some(timeout) = limits.park_timeout {
        builder = builder.park_timeout(timeout);
    }
    if let Some(timeout) = limits.call_timeout {
        builder = builder.call_idle_timeout(timeout);
    }
    builder
}
