//! The side of the bridge that clients see.

use std::net::IpAddr;

use bowline::http::HttpService;
use bowline::http::server::SourcePolicy;
use bowline_auth::server::ResourceServer;
use bowline_bridge::Bridge;

use super::BoxError;
use super::options::{FrontPlan, HttpFront};
use super::signals::Signals;
use crate::failure::Failure;
use crate::options::DrainOptions;
use crate::suggestion::Suggestion;

/// Serves clients until a signal, or until stdin ends.
pub(crate) async fn serve(
    bridge: &Bridge,
    front: &FrontPlan,
    drain: DrainOptions,
    guard: Option<ResourceServer>,
    signals: &Signals,
) -> Result<(), BoxError> {
    let front = match front {
        FrontPlan::Stdio => {
            let mut wire = bridge.wire();
            if let Some(grace) = drain.grace {
                wire = wire.grace(grace);
            }
            return Ok(wire.serve_stdio().await?);
        }
        FrontPlan::Http(front) => front,
    };
    let service = drain.apply(http_service(bridge, front));
    let bound = service.bind(&front.address).await;
    let bound = bound.map_err(|error| {
        let cause = std::error::Error::source(&error).map_or(String::new(), |it| format!(": {it}"));
        Failure::other(format!("failed to listen on {}{cause}", front.address))
            .suggest(Suggestion::FreeAddress)
    })?;
    if signals.has_any() {
        return Ok(()); // before the server listens to them
    }
    // On stderr, as everything that the bridge prints: stdout is not for people.
    let address = bound.local_addr();
    eprintln!("bowline: listening on http://{address}{}", front.path());
    if guard.is_none() && !address.ip().is_loopback() {
        eprintln!(
            "bowline: everyone who can reach {address} can use what is behind this bridge; require tokens with `auth` in a file, or put a proxy in front"
        );
    }
    match guard {
        Some(guard) => bound.layer(guard).serve_until_signal().await?,
        None => bound.serve_until_signal().await?,
    }
    Ok(())
}

fn http_service(bridge: &Bridge, front: &HttpFront) -> HttpService {
    let service = bridge
        .http()
        .paths([front.path(), "/sse"])
        .cors(&front.cors);
    if front.allow_hosts.is_empty() {
        return service;
    }
    let policy = match is_loopback(&front.address) {
        true => SourcePolicy::loopback(),
        false => SourcePolicy::public(),
    };
    service.source(
        front
            .allow_hosts
            .iter()
            .fold(policy, SourcePolicy::allow_host),
    )
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_recognized() {
        for address in ["127.0.0.1:0", "localhost:8000", "[::1]:80", "127.9.9.9:1"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["0.0.0.0:80", "[::]:80", "example.com:80"] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
