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

mod limits;

mod options;
pub(crate) use options::{BridgeOptions, BridgePlan};

mod pins;

mod signals;

mod state_key;

mod upstream;

use bowline::telemetry::Telemetry;
use bowline_bridge::config::UpstreamConfig;
use bowline_bridge::{Bridge, Target, credentials};

use crate::child_stderr::StderrWriter;
use crate::encryption::{self, exposed_headers, print_warning};
use crate::log::log_service_to_stderr;
use crate::telemetry::Exporters;
use options::{ConfigAction, UpstreamPlan};
use signals::Signals;

/// An error for the user, with its causes.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs the bridge until a signal, or until stdin ends if the front is stdio.
pub(crate) async fn run(plan: BridgePlan) -> Result<(), BoxError> {
    log_service_to_stderr(plan.verbosity);
    if let UpstreamPlan::Config {
        file,
        sign_in,
        action,
    } = &plan.upstream
    {
        match action {
            ConfigAction::Serve => {}
            ConfigAction::Check => return configured::check(file, sign_in),
            ConfigAction::Pins(pins) => return pins.run(file),
        }
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
            for server in config.upstreams().map(UpstreamConfig::server) {
                let names = server.headers().map(|(name, _)| name);
                print_warning(exposed_headers(server.url().unwrap_or_default(), names));
            }
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
            print_warning(encryption::warning(url));
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
    let target = match &plan.protocol_version {
        Some(version) => target.protocol_version(version.as_str()),
        None => target,
    };
    let mut builder = plan.limits.apply(Bridge::builder(target));
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
