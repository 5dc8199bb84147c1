//! The faults that a schedule injects, and the failures that each of them allows.

use std::time::Duration;

use crate::scene::{Fault, TransportKind};
use crate::schedule::{RESOURCE_URIS, Schedule};
use crate::schedule_log::AllowedFailure;

impl Schedule {
    /// Injects the fault of this schedule's scene.
    pub(crate) async fn inject_fault(&mut self) {
        match self.setup.config.fault {
            Fault::Teardown => self.tear_down(),
            Fault::Restart => self.restart(),
            Fault::SessionDeleted => self.delete_session().await,
            Fault::GracefulShutdown => self.shut_down_connection(),
            Fault::HalfOpen => self.half_open(),
            Fault::StalledReader => self.stall_reader(),
            Fault::Burst => self.burst().await,
            Fault::Batches => self.batch(),
        }
    }

    /// Calls and subscriptions in flight are lost with the server. Later ones must succeed.
    fn restart(&mut self) {
        let log = &self.setup.log;
        log.note("the server restarts");
        log.allow(AllowedFailure::SubscriptionLost);
        log.allow(AllowedFailure::Replay);
        self.calls.iter().for_each(|call| call.excuse());
        self.listeners.iter().for_each(|it| it.disrupt());
        self.setup.restart();
    }

    /// Calls and subscriptions of one party in flight are lost. Its connections stay.
    async fn delete_session(&mut self) {
        let at = self.setup.random.below(self.setup.parties.len());
        let party = self.setup.parties[at].name;
        let log = &self.setup.log;
        let own = self.calls.iter().filter(|call| call.party == party);
        own.for_each(|call| call.excuse());
        let own = self.listeners.iter().filter(|it| it.party() == party);
        own.for_each(|it| it.disrupt());
        log.allow(AllowedFailure::SubscriptionLost);
        log.allow(AllowedFailure::Replay);
        let is_deleted = self.setup.frontend.delete_session(party).await;
        log.note(format_args!(
            "the session of {party} is deleted: {is_deleted}"
        ));
    }

    /// Loses nothing over HTTP/2, whose GOAWAY names the last request that was processed. Over HTTP/1.1, and on a
    /// connection from which nothing was read, a request that was not processed may be lost.
    fn shut_down_connection(&mut self) {
        let connections = self.setup.frontend.connections();
        if connections == 0 {
            return;
        }
        let at = self.setup.random.below(connections);
        let log = &self.setup.log;
        log.note(format_args!("connection {at} shuts down"));
        log.allow(AllowedFailure::Replay);
        let pipe = self.setup.frontend.shut_down_connection(at);
        let was_read = pipe.is_some_and(|pipe| self.setup.network.has_server_read(pipe));
        if self.setup.config.transport == TransportKind::Http1 || !was_read {
            log.allow(AllowedFailure::LostBeforeHandler);
        }
    }

    /// Calls and subscriptions on the connection are lost, but end at their deadlines. Later ones use another
    /// connection.
    fn half_open(&mut self) {
        let log = &self.setup.log;
        log.allow(AllowedFailure::Timeout);
        log.allow(AllowedFailure::ConnectionLost);
        log.allow(AllowedFailure::SubscriptionLost);
        log.allow(AllowedFailure::Replay);
        self.listeners.iter().for_each(|it| it.disrupt());
        self.setup.network.blackhole();
    }

    /// A reader that pauses loses nothing; one that never resumes is disconnected after a timeout.
    fn stall_reader(&mut self) {
        let log = &self.setup.log;
        log.allow(AllowedFailure::Lag);
        if !self.is_stalled_for_good && self.setup.random.one_in(2) {
            self.is_stalled_for_good = true;
            log.note("stalled readers never resume");
        }
        if self.is_stalled_for_good {
            log.allow(AllowedFailure::Timeout);
            log.allow(AllowedFailure::ConnectionLost);
            log.allow(AllowedFailure::SubscriptionLost);
            self.listeners.iter().for_each(|it| it.disrupt());
        }
        log.allow(AllowedFailure::Replay);
        self.setup.network.pause_reader(self.is_stalled_for_good);
    }

    /// Announces changes faster than a listener reads them.
    async fn burst(&mut self) {
        let random = self.setup.random.clone();
        self.setup.log.allow(AllowedFailure::Lag);
        if !self.listeners.is_empty() && random.one_in(2) {
            let at = random.below(self.listeners.len());
            self.listeners[at].set_paused(random.one_in(2));
        }
        let uri = *random.pick(&RESOURCE_URIS);
        let count = *random.pick(&[10, 10, 300, 1500]);
        // Fewer than fit into a server's queue, or many more.
        let without_yield = *random.pick(&[50, 200, 2000]);
        self.setup
            .log
            .note(format_args!("{uri} changes {count} times"));
        for number in 1..=count {
            self.announce(uri);
            if number % without_yield == 0 {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn batch(&mut self) {
        if let Some(batch_client) = &mut self.setup.batch_client {
            batch_client.step();
        }
    }

    fn tear_down(&mut self) {
        self.setup.log.allow(AllowedFailure::Any);
        match self.setup.random.below(6) {
            0 => {
                let at = self.setup.random.below(self.setup.parties.len());
                let party = &mut self.setup.parties[at];
                self.setup.log.note(format_args!("{} closes", party.name));
                party
                    .client
                    .take()
                    .map(|client| tokio::spawn(client.close()));
            }
            1 => {
                let at = self.setup.random.below(self.setup.parties.len());
                let party = &mut self.setup.parties[at];
                self.setup
                    .log
                    .note(format_args!("{} is dropped", party.name));
                party.client = None;
            }
            2 => {
                let grace = self.setup.random.below(100) as u64;
                self.setup
                    .log
                    .note(format_args!("the server shuts down in {grace} ms"));
                self.setup.shut_down(Duration::from_millis(grace));
            }
            _ => self.setup.network.break_pipe(),
        }
    }
}
