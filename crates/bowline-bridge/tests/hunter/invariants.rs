//! The invariants at the end of a schedule: no call waits, no handler runs, and neither the bridge nor its neighbours
//! hold anything.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::bridge_scene::BridgeFault;
use crate::bridge_schedule::BridgeSchedule;
use crate::handlers::{HandlerStep, Job, sleep_ms};
use crate::world::PARK_TIMEOUT;

impl BridgeSchedule {
    /// Finishes all calls and checks the invariants.
    pub(crate) async fn finish(mut self) {
        for network in self.world.networks() {
            network.deliver_immediately();
        }
        self.world.log.note("the networks deliver immediately");
        sleep_ms(500).await;
        self.check_that_handlers_have_stopped(|asks| !asks);
        self.finish_calls().await;
        if self.world.config.parks_calls() {
            // A client that drops a call while it answers a question is not noticed before.
            sleep_ms(PARK_TIMEOUT.as_millis() as u64).await;
        }
        self.check_that_handlers_have_stopped(|_| true);
        self.check_that_later_calls_succeed().await;
        self.check_that_calls_were_sent_once();
        self.check_that_nothing_waits();
        self.close().await;
    }

    /// Checks that the handlers of abandoned calls have stopped, of those that ask the client or not.
    fn check_that_handlers_have_stopped(&self, selects: impl Fn(bool) -> bool) {
        let log = &self.world.log;
        // A cancel on a pipe that was cut may be lost.
        if log.allows_any_failure() {
            return;
        }
        let calls = self.calls.iter().filter(|it| selects(it.asks));
        for call in calls.map(|it| &it.call).filter(|it| it.must_be_stopped()) {
            for tag in [call.tag.clone(), format!("{}'s host", call.tag)] {
                if log.is_handler_running(&tag) {
                    log.violation("abandoning a call stops its handler", tag);
                }
            }
        }
    }

    async fn finish_calls(&mut self) {
        let log = &self.world.log;
        log.note("all handlers are released");
        self.world.release_gate.release_all();
        let calls = self.calls.iter_mut().map(|it| &mut it.call);
        calls
            .filter(|call| call.is_unpolled())
            .for_each(|call| call.start_polling());
        for _ in 0..MAX_CALL_SECONDS {
            if !self.calls.iter().any(|it| it.call.is_pending()) {
                break;
            }
            sleep_ms(1000).await;
        }
        for it in self.calls.iter().filter(|it| it.call.is_pending()) {
            log.violation("every request ends", &it.call.tag);
        }
        // The responses to cancelled POSTs are drained for a few seconds.
        sleep_ms(6000).await;
    }

    /// Checks that every client can still call, also after a restart of the server.
    async fn check_that_later_calls_succeed(&self) {
        let log = &self.world.log;
        match self.world.config.fault {
            BridgeFault::Teardown if log.allows_any_failure() => return,
            // After failures the bridge refuses calls for a while.
            BridgeFault::Restart => sleep_ms(MAX_BREAK).await,
            _ => {}
        }
        for party in &self.world.parties {
            let Some(client) = &party.client else {
                continue;
            };
            let tag = format!("{}-verify", party.name);
            let job = Job {
                tag: tag.clone(),
                plan: vec![HandlerStep::Yield],
            };
            let request = client.call_tool("work", job);
            let outcome = request.idle_timeout(Duration::from_secs(10)).await;
            if !matches!(&outcome, Ok(reply) if reply.text() == tag) {
                let details = format!("{} got {outcome:?}", party.name);
                log.violation("a later call succeeds", details);
            }
        }
    }

    /// Checks that no call was repeated. A modern server runs the handler of a call again for each round of input.
    fn check_that_calls_were_sent_once(&self) {
        let log = &self.world.log;
        let has_rounds = self.world.config.upstream.dialect.is_modern();
        for it in self.calls.iter().filter(|it| !(it.asks && has_rounds)) {
            let starts = log.handler_starts(&it.call.tag);
            if starts > 1 {
                let details = format_args!("{} was sent {starts} times", it.call.tag);
                log.violation("a call is sent upstream at most once", details);
            }
        }
    }

    fn check_that_nothing_waits(&self) {
        let usage = self.world.bridge.usage();
        if usage.waiting_calls > 0 {
            let invariant = "no call that has ended is in flight or parked";
            self.world
                .log
                .violation(invariant, format_args!("{usage:?}"));
        }
    }

    /// Closes the clients, the bridge and the server, and checks that no request, handler or task is left.
    async fn close(self) {
        let Self {
            mut world, calls, ..
        } = self;
        drop(calls);
        for party in std::mem::take(&mut world.parties) {
            let Some(client) = party.client else {
                continue;
            };
            let closed = tokio::time::timeout(Duration::from_secs(5), client.close()).await;
            if closed.is_err() {
                let invariant = "a client closes within 5 s";
                world.log.violation(invariant, party.name);
            }
        }
        sleep_ms(6000).await;
        let log = world.log.clone();
        let usage = world.bridge.usage();
        let front = world.front_http.service();
        let (in_flight, sessions) = (front.in_flight(), front.sessions());
        // The cancel or the DELETE of a client may be lost with its connection.
        if !log.allows_any_failure() && (in_flight, sessions, usage.requests) != (0, 0, 0) {
            let invariant = "clients that close leave nothing at the bridge";
            let details = format_args!("{in_flight} requests, {sessions} sessions, {usage:?}");
            log.violation(invariant, details);
        }
        front.shut_down(Duration::ZERO);
        drop((front, world.front_http));
        sleep_ms(3000).await;
        let usage = world.bridge.usage();
        if (usage.requests, usage.waiting_calls) != (0, 0) {
            let invariant = "a bridge without clients holds no request and no call";
            log.violation(invariant, format_args!("{usage:?}"));
        }
        let closed = tokio::time::timeout(Duration::from_secs(10), world.bridge.close()).await;
        if closed.is_err() {
            log.violation("a bridge closes within 10 s", format_args!("{usage:?}"));
        }
        drop(world.bridge);
        sleep_ms(6000).await;
        let running = log.running_handlers();
        if !running.is_empty() && !log.allows_any_failure() {
            let invariant = "no handler outlives the bridge";
            log.violation(invariant, format_args!("{running:?}"));
        }
        world.upstream.shut_down(Duration::ZERO);
        drop((world.upstream, world.front, world.release_gate));
        sleep_ms(3000).await;
        let running = log.running_handlers();
        if !running.is_empty() {
            let invariant = "no handler outlives its server";
            log.violation(invariant, format_args!("{running:?}"));
        }
        let tasks = Handle::current().metrics().num_alive_tasks();
        if tasks > 0 {
            log.violation("no task is left", format_args!("{tasks} are left"));
        }
    }
}

/// The time in seconds after which a call without a deadline of its own must have ended: a little more than a client's
/// default timeout.
const MAX_CALL_SECONDS: usize = 70;
/// The time in milliseconds after which the bridge tries again to connect.
const MAX_BREAK: u64 = 60_000;
