//! The invariants at the end of a schedule: no call waits, no handler runs, and no state is left.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::handlers::{HandlerStep, Job, sleep_ms};
use crate::network::FlowDirection;
use crate::scene::{Fault, TransportKind};
use crate::schedule::{RESOURCE_URIS, Schedule};
use crate::schedule_log::AllowedFailure;
use crate::update_listener::UpdateListener;

impl Schedule {
    /// Finishes all calls and subscriptions and checks the invariants.
    pub(crate) async fn finish(mut self) {
        let fault = self.setup.config.fault;
        if !self.is_stalled_for_good {
            self.setup.network.resume_readers(FlowDirection::ToServer);
            self.setup.network.resume_readers(FlowDirection::ToClient);
        }
        self.setup.network.deliver_immediately();
        self.setup.log.note("the network delivers immediately");
        sleep_ms(500).await;
        if self.is_stalled_for_good {
            // The server disconnects a client that does not read, which may be the only way it learns of a cancel.
            self.setup.network.resume_readers(FlowDirection::ToServer);
            sleep_ms(STALLED_READER_TIMEOUT).await;
        }
        // A cancel on a half-open connection is lost until the connection breaks.
        if fault != Fault::HalfOpen {
            self.check_that_handlers_have_stopped();
        }
        self.setup.network.resume_readers(FlowDirection::ToServer);
        self.setup.network.resume_readers(FlowDirection::ToClient);
        self.listeners.iter().for_each(|it| it.set_paused(false));
        sleep_ms(100).await;
        self.listeners.iter().for_each(|listener| listener.check());
        if fault == Fault::HalfOpen {
            self.check_that_a_new_connection_works().await;
            self.setup.network.cut_blackholed();
            sleep_ms(500).await;
            if self.setup.config.dialect.is_modern() {
                self.check_that_handlers_have_stopped();
            }
        }
        self.check_that_listeners_receive_again().await;
        self.listeners.clear();
        self.finish_calls().await;
        if let Some(batch_client) = self.setup.batch_client.take() {
            batch_client.finish().await;
        }
        self.check_that_later_calls_succeed().await;
        self.check_tables();
        self.close().await;
    }

    /// Checks that after calls on half-open connections have timed out, one on each, a later call uses another
    /// connection.
    async fn check_that_a_new_connection_works(&self) {
        if self.has_one_wire() {
            return;
        }
        let log = &self.setup.log;
        for party in &self.setup.parties {
            let Some(client) = &party.client else {
                continue;
            };
            let mut outcome = Err(bowline::Error::Closed);
            for _ in 0..=self.setup.network.blackholed_pipes() {
                let job = Job {
                    tag: format!("{}-probe", party.name),
                    plan: Vec::new(),
                };
                let request = client.call_tool("work", job);
                outcome = request.timeout(Duration::from_secs(2)).await;
                if outcome.is_ok() {
                    break;
                }
                sleep_ms(DEAD_CONNECTION_TIMEOUT).await;
            }
            if let Err(error) = outcome {
                let invariant =
                    "after a call timed out on a half-open connection, a later call succeeds";
                log.violation(invariant, format_args!("{}: {error}", party.name));
            }
        }
    }

    /// Whether each client has one wire, whose end it does not survive.
    fn has_one_wire(&self) -> bool {
        self.setup.config.is_http_sse() || self.setup.config.transport == TransportKind::Lines
    }

    /// Checks that listeners receive changes after any fault.
    async fn check_that_listeners_receive_again(&self) {
        let log = &self.setup.log;
        let may_be_over = self.has_one_wire() && log.allows(AllowedFailure::ConnectionLost);
        if log.allows_any_failure() || may_be_over || self.listeners.is_empty() {
            return;
        }
        // A listener that lost its subscription gets an error and subscribes again, or its client does.
        sleep_ms(RESUBSCRIBE_TIMEOUT).await;
        let listeners = self.listeners.iter();
        listeners.for_each(|it| it.check_caught_up());
        let before: Vec<_> = self
            .listeners
            .iter()
            .map(UpdateListener::received)
            .collect();
        RESOURCE_URIS.iter().for_each(|uri| self.announce(uri));
        sleep_ms(1000).await;
        for (listener, before) in self.listeners.iter().zip(before) {
            if listener.received() <= before {
                let invariant = "a listener receives changes after any fault";
                log.violation(invariant, listener.tag());
            }
        }
    }

    /// Checks that the handlers of abandoned calls have stopped.
    fn check_that_handlers_have_stopped(&self) {
        let log = &self.setup.log;
        // A cancel on a pipe that was cut may be lost; the handler stops when its client closes.
        if log.allows_any_failure() {
            return;
        }
        // In the legacy era a cancel is lost with the connection that the server closes, which is not a cancel itself.
        if self.is_stalled_for_good && !self.setup.config.dialect.is_modern() {
            return;
        }
        self.setup
            .batch_client
            .iter()
            .for_each(|it| it.check_that_handlers_have_stopped());
        for call in self.calls.iter().filter(|call| call.must_be_stopped()) {
            for tag in [call.tag.clone(), format!("{}'s host", call.tag)] {
                if log.is_handler_running(&tag) {
                    log.violation(ABANDONED_HANDLERS_STOP, tag);
                }
            }
        }
    }

    async fn finish_calls(&mut self) {
        let log = &self.setup.log;
        log.note("all handlers are released");
        self.setup.release_gate.release_all();
        let unpolled = self.calls.iter_mut().filter(|call| call.is_unpolled());
        unpolled.for_each(|call| call.start_polling());
        for _ in 0..MAX_CALL_SECONDS {
            if !self.calls.iter().any(|call| call.is_pending()) {
                break;
            }
            sleep_ms(1000).await;
        }
        for call in self.calls.iter().filter(|call| call.is_pending()) {
            log.violation("every request ends", &call.tag);
        }
        // The responses to cancelled POSTs are drained for a few seconds. Where a request may have been refused after
        // its cancel was posted, the server may keep the cancel, and the client reserves the id for 15 s.
        sleep_ms(match self.setup.config.fault {
            Fault::GracefulShutdown => 21_000,
            _ => 6000,
        })
        .await;
    }

    /// Checks that every client can still call, with any id that was used before.
    async fn check_that_later_calls_succeed(&self) {
        let log = &self.setup.log;
        let may_be_over = self.has_one_wire() && log.allows(AllowedFailure::ConnectionLost);
        if log.allows_any_failure() || may_be_over {
            return;
        }
        for party in &self.setup.parties {
            let Some(client) = &party.client else {
                continue;
            };
            // A lost cancel leaves its id in flight, and a cancel whose request was lost applies to the next with its
            // id.
            let may_be_lost = self.setup.config.is_legacy_http() && self.may_lose_a_post();
            let own = self
                .calls
                .iter()
                .filter(|call| call.party == party.name && !may_be_lost);
            let mut ids: Vec<_> = own.filter_map(|call| call.chosen_id().cloned()).collect();
            ids.sort();
            ids.dedup();
            let ids = std::iter::once(None).chain(ids.into_iter().map(Some));
            for id in ids {
                let tag = format!("{}-verify", party.name);
                let job = Job {
                    tag: tag.clone(),
                    plan: vec![HandlerStep::Yield],
                };
                let mut request = client.call_tool("work", job);
                if let Some(id) = &id {
                    request = request.id(id.clone());
                }
                let outcome = request.idle_timeout(Duration::from_secs(1)).await;
                if !matches!(&outcome, Ok(reply) if reply.text() == tag) {
                    let details = format!("{} got {outcome:?} with id {id:?}", party.name);
                    log.violation("a later call succeeds, and every id is free", details);
                }
            }
        }
    }

    fn check_tables(&self) {
        let log = &self.setup.log;
        let invariant = "no table holds a request that has ended";
        for party in &self.setup.parties {
            let near = party.client.as_ref().and_then(|client| client.peer());
            for peer in near.into_iter().chain(&party.server_end) {
                if !peer.is_idle() {
                    log.violation(invariant, format_args!("{} has {peer:?}", party.name));
                }
            }
        }
        let in_flight = self.setup.frontend.service().in_flight();
        // In the legacy era each client has a GET stream open, and a lost cancel leaves its request in flight.
        let is_legacy = self.setup.config.is_legacy_http();
        let streams = match is_legacy {
            true => self.setup.parties.len(),
            false => 0,
        };
        let may_be_lost = is_legacy && self.may_lose_a_post();
        if in_flight > streams && !may_be_lost {
            let details = format_args!("the service has {in_flight} requests");
            log.violation(invariant, details);
        }
    }

    /// Whether a POST of a client that is still connected, such as a cancel, may have been lost.
    fn may_lose_a_post(&self) -> bool {
        let log = &self.setup.log;
        log.allows(AllowedFailure::ConnectionLost) || log.allows(AllowedFailure::LostBeforeHandler)
    }

    /// Closes all clients and the server, and checks that no session, handler or task is left.
    async fn close(self) {
        let may_be_lost = self.may_lose_a_post();
        let Self {
            mut setup,
            calls,
            listeners,
            ..
        } = self;
        drop((calls, listeners));
        for party in std::mem::take(&mut setup.parties) {
            if let Some(client) = party.client {
                let closed = tokio::time::timeout(Duration::from_secs(5), client.close()).await;
                if closed.is_err() {
                    let invariant = "a client closes within 5 s";
                    setup.log.violation(invariant, party.name);
                }
            }
        }
        sleep_ms(3000).await;
        let in_flight = setup.frontend.service().in_flight();
        let sessions = setup.frontend.service().sessions();
        // The DELETE of a session may be lost too.
        if sessions > 0 && !may_be_lost {
            let invariant = "a client that closes leaves no session";
            setup
                .log
                .violation(invariant, format_args!("{sessions} are left"));
        }
        if in_flight > 0 && !may_be_lost {
            let invariant = "a client that closes leaves no request";
            setup
                .log
                .violation(invariant, format_args!("{in_flight} are left"));
        }
        setup.shut_down(Duration::ZERO);
        drop((setup.server, setup.frontend));
        sleep_ms(3000).await;
        let running = setup.log.running_handlers();
        if !running.is_empty() {
            setup
                .log
                .violation("no handler outlives its wire", format_args!("{running:?}"));
        }
        let tasks = Handle::current().metrics().num_alive_tasks();
        if tasks > 0 {
            setup
                .log
                .violation("no task is left", format_args!("{tasks} are left"));
        }
    }
}

pub(crate) const ABANDONED_HANDLERS_STOP: &str = "abandoning a call stops its handler";
/// The time in seconds after which a call without a deadline of its own must have ended: a little more than a client's
/// default timeout.
pub(crate) const MAX_CALL_SECONDS: usize = 70;
/// The time in milliseconds after which a peer that does not read is disconnected.
const STALLED_READER_TIMEOUT: u64 = 45_000;
/// The time in milliseconds after which a client knows that the connection of a call that timed out is dead.
const DEAD_CONNECTION_TIMEOUT: u64 = 30_000;
/// The time in milliseconds within which a listener must be subscribed again.
const RESUBSCRIBE_TIMEOUT: u64 = 15_000;
