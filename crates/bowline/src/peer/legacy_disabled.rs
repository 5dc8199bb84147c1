//! Replaces `legacy.rs` in a build without the feature `legacy`.

use std::sync::Arc;

use bowline_core::era::{Caller, Request};
use bowline_core::mux::InFlightId;
use bowline_types::{Json, RpcError};

use super::Peer;
use crate::exchange::{Exchange, Responder};
use crate::limits::{Account, Charge, ChargeKind};

pub(super) fn must_emulate(_: &Request) -> bool {
    false
}

pub(super) fn listen(peer: &Peer, request: &Request) -> Exchange {
    peer.call(request, bowline_core::mux::CallOptions::default())
        .1
}

pub(super) fn remember_capabilities(_: &Peer, _: &Json) {}

pub(super) fn remember_log_level(_: &Peer, _: &Request) {}

#[derive(Debug, Default)]
pub(super) struct RestorableState {}

impl RestorableState {
    pub(super) fn subscribed_resources(&self) -> Vec<String> {
        Vec::new()
    }

    pub(super) fn skip_capability_check(&mut self) {}

    pub(super) fn reset(&mut self) {}

    pub(super) fn is_empty(&self) -> bool {
        true
    }
}

#[derive(Default)]
pub(super) struct LegacySubscriptions {}

impl LegacySubscriptions {
    pub(super) fn subscribe(
        &mut self,
        _: &Peer,
        _: Arc<Caller>,
        _: Arc<dyn Responder>,
        _: String,
        _: InFlightId,
        _: Charge,
    ) {
    }

    pub(super) fn subscribe_lists(
        &mut self,
        _: &Peer,
        _: Arc<Caller>,
        _: Arc<dyn Responder>,
        _: bool,
    ) {
    }

    pub(super) fn restore_log_level(&mut self, _: &Peer) {}

    pub(super) fn charge(
        &mut self,
        _: &str,
        account: &Arc<Account>,
        _: usize,
    ) -> Result<Charge, RpcError> {
        Ok(account.empty_charge(ChargeKind::Kept))
    }

    pub(super) fn unsubscribe(&mut self, _: &str) {}

    pub(super) fn clear(&mut self) {}
}
