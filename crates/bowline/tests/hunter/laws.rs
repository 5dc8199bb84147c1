//! What must hold when a schedule is over: nobody waits, nobody works, and nothing is left.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::ledger::Permit;
use crate::listening::Listening;
use crate::network::Way;
use crate::scene::{Carrier, Trouble};
use crate::schedule::{Schedule, THINGS};
use crate::work::{Act, Job, pass};

impl Schedule {
    /// Lets everything come to its end, and sees to it that it does.
    pub(crate) async fn end(mut self) {
        let trouble = self.world.column.trouble;
        if !self.is_unread_for_good {
            self.world.network.read_again(Way::ToServer);
            self.world.network.read_again(Way::ToClient);
        }
        self.world.network.flow();
        self.world.ledger.note("everything flows");
        pass(500).await;
        if self.is_unread_for_good {
            // The server cuts off whoever does not read, and nothing but that may tell it of a cancel. It reads itself.
            self.world.network.read_again(Way::ToServer);
            pass(CUT_OFF_WITHIN).await;
        }
        // What is lost on a path that is half dead is known to be so once the path breaks.
        if trouble != Trouble::HalfDead {
            self.check_that_work_has_stopped();
        }
        self.world.network.read_again(Way::ToServer);
        self.world.network.read_again(Way::ToClient);
        self.listeners.iter().for_each(|it| it.nap(false));
        pass(100).await;
        self.listeners.iter().for_each(|listener| listener.check());
        if trouble == Trouble::HalfDead {
            self.check_that_a_path_is_found().await;
            self.world.network.cut_dead();
            pass(500).await;
            if self.world.column.dialect.is_modern() {
                self.check_that_work_has_stopped();
            }
        }
        self.check_that_listeners_hear_again().await;
        self.listeners.clear();
        self.let_calls_finish().await;
        if let Some(batcher) = self.world.batcher.take() {
            batcher.end().await;
        }
        self.check_that_life_goes_on().await;
        self.check_tables();
        self.leave().await;
    }

    /// While a path is half dead, a call may end at its deadline; a later one goes another way. Each path that
    /// is dead may cost one call.
    async fn check_that_a_path_is_found(&self) {
        if self.world.column.carrier == Carrier::Lines || self.world.column.is_http_sse() {
            return; // there is no other way
        }
        let ledger = &self.world.ledger;
        for party in &self.world.parties {
            let Some(client) = &party.client else {
                continue;
            };
            let mut outcome = Err(bowline::Error::Closed);
            for _ in 0..=self.world.network.dead_pipes() {
                let job = Job {
                    tag: format!("{}'s way", party.name),
                    acts: Vec::new(),
                };
                let draft = client.call_tool("work", job);
                outcome = draft.total_timeout(Duration::from_secs(2)).await;
                if outcome.is_ok() {
                    break;
                }
                pass(PING_WITHIN).await;
            }
            if let Err(error) = outcome {
                let law = "after a call on a half-dead path timed out, a later call finds a way";
                ledger.broken(law, format_args!("{}: {error}", party.name));
            }
        }
    }

    /// Whatever happened, who listens hears of what happens now.
    async fn check_that_listeners_hear_again(&self) {
        let ledger = &self.world.ledger;
        let is_over =
            self.world.column.is_http_sse() || self.world.column.carrier == Carrier::Lines;
        let may_be_over = is_over && ledger.permits(Permit::ConnectionLost);
        if ledger.is_wrecked() || may_be_over || self.listeners.is_empty() {
            return;
        }
        // Whoever lost its subscription is told, or comes back by itself.
        pass(BACK_WITHIN).await;
        let listeners = self.listeners.iter();
        listeners.for_each(|it| it.check_that_it_caught_up());
        let before: Vec<_> = self.listeners.iter().map(Listening::heard).collect();
        THINGS.iter().for_each(|uri| self.announce(uri));
        pass(1000).await;
        for (listener, before) in self.listeners.iter().zip(before) {
            if listener.heard() <= before {
                let law = "who still listens hears again, whatever happened before";
                ledger.broken(law, listener.tag());
            }
        }
    }

    /// What nobody waits for is not worked on, while others go on.
    fn check_that_work_has_stopped(&self) {
        let ledger = &self.world.ledger;
        // Whoever was told to stop over a pipe that was cut may not know; it learns when its client leaves.
        if ledger.is_wrecked() {
            return;
        }
        // In the legacy era what was told over a connection that is cut off is lost, and that is no cancel.
        if self.is_unread_for_good && !self.world.column.dialect.is_modern() {
            return;
        }
        self.world
            .batcher
            .iter()
            .for_each(|it| it.check_that_work_has_stopped());
        for call in self.calls.iter().filter(|call| call.must_have_stopped()) {
            for tag in [call.tag.clone(), format!("{}'s host", call.tag)] {
                if ledger.is_at_work(&tag) {
                    ledger.broken("letting go of a call stops the work", tag);
                }
            }
        }
    }

    async fn let_calls_finish(&mut self) {
        let ledger = &self.world.ledger;
        ledger.note("everything is released");
        self.world.releases.release_all();
        let begun = self.calls.iter_mut().filter(|call| call.is_only_begun());
        begun.for_each(|call| call.take_up());
        for _ in 0..PATIENCE {
            if !self.calls.iter().any(|call| call.is_open()) {
                break;
            }
            pass(1000).await;
        }
        for call in self.calls.iter().filter(|call| call.is_open()) {
            ledger.broken("every request ends", &call.tag);
        }
        // The responses to cancelled POSTs are drained for a while. Where a request may have been refused after its cancel
        // was posted, the server may keep the cancel, and the client keeps the id back for 15 s.
        pass(match self.world.column.trouble {
            Trouble::Goodbye => 21_000,
            _ => 6000,
        })
        .await;
    }

    /// Every client can still call, by any id that was used before.
    async fn check_that_life_goes_on(&self) {
        let ledger = &self.world.ledger;
        let is_one_wire =
            self.world.column.is_http_sse() || self.world.column.carrier == Carrier::Lines;
        if ledger.is_wrecked() || (is_one_wire && ledger.permits(Permit::ConnectionLost)) {
            return;
        }
        for party in &self.world.parties {
            let Some(client) = &party.client else {
                continue;
            };
            // A cancel that was lost leaves its id in flight, and one whose request was lost waits for it.
            let may_be_lost = self.world.column.is_legacy_http() && self.may_lose_a_post();
            let own = self
                .calls
                .iter()
                .filter(|call| call.party == party.name && !may_be_lost);
            let mut ids: Vec<_> = own.filter_map(|call| call.chosen_id().cloned()).collect();
            ids.sort();
            ids.dedup();
            let ids = std::iter::once(None).chain(ids.into_iter().map(Some));
            for id in ids {
                let tag = format!("{}'s last", party.name);
                let acts = vec![Act::Yield];
                let mut draft = client.call_tool(
                    "work",
                    Job {
                        tag: tag.clone(),
                        acts,
                    },
                );
                if let Some(id) = &id {
                    draft = draft.id(id.clone());
                }
                let outcome = draft.timeout(Duration::from_secs(1)).await;
                if !matches!(&outcome, Ok(reply) if reply.text() == tag) {
                    let how = format!("{} got {outcome:?} as {id:?}", party.name);
                    self.world
                        .ledger
                        .broken("a next call works, and every id is free", how);
                }
            }
        }
    }

    fn check_tables(&self) {
        let ledger = &self.world.ledger;
        let law = "no table remembers what is over";
        for party in &self.world.parties {
            let near = party.client.as_ref().and_then(|client| client.peer());
            for peer in near.into_iter().chain(&party.server_end) {
                if !peer.is_idle() {
                    ledger.broken(law, format_args!("{} has {peer:?}", party.name));
                }
            }
        }
        let in_flight = self.world.door.service().in_flight();
        // In the legacy era each client has a stream open, and a cancel that was lost leaves its request.
        let is_legacy = self.world.column.is_legacy_http();
        let streams = match is_legacy {
            true => self.world.parties.len(),
            false => 0,
        };
        let may_be_lost = is_legacy && self.may_lose_a_post();
        if in_flight > streams && !may_be_lost {
            ledger.broken(law, format_args!("the service has {in_flight} requests"));
        }
    }

    /// Whether something that a client posted, a cancel for example, may not have arrived although the client lives on.
    fn may_lose_a_post(&self) -> bool {
        let permits = [Permit::ConnectionLost, Permit::LostUnbegun];
        permits.iter().any(|it| self.world.ledger.permits(*it))
    }

    /// Everybody leaves; then no handler, no conversation and no task may be left.
    async fn leave(self) {
        let Self {
            mut world,
            calls,
            listeners,
            ..
        } = self;
        drop((calls, listeners));
        for party in std::mem::take(&mut world.parties) {
            if let Some(client) = party.client {
                let closed = tokio::time::timeout(Duration::from_secs(5), client.close()).await;
                if closed.is_err() {
                    world.ledger.broken("a client closes in time", party.name);
                }
            }
        }
        pass(3000).await;
        let in_flight = world.door.service().in_flight();
        let legacy = world.door.service().sessions();
        // A goodbye that is said on a connection that may be lost is lost with it.
        let may_be_lost = [Permit::ConnectionLost, Permit::LostUnbegun];
        let may_be_lost = may_be_lost.iter().any(|it| world.ledger.permits(*it));
        if legacy > 0 && !may_be_lost {
            world.ledger.broken(
                "who closes is forgotten",
                format_args!("{legacy} are remembered"),
            );
        }
        if in_flight > 0 && !may_be_lost {
            let law = "who closes leaves no request";
            world
                .ledger
                .broken(law, format_args!("{in_flight} are left"));
        }
        world.shut_down(Duration::ZERO);
        drop((world.server, world.door));
        pass(3000).await;
        let at_work = world.ledger.all_at_work();
        if !at_work.is_empty() {
            world
                .ledger
                .broken("no handler outlives its wire", format_args!("{at_work:?}"));
        }
        let tasks = Handle::current().metrics().num_alive_tasks();
        if tasks > 0 {
            world
                .ledger
                .broken("no task is left", format_args!("{tasks} are"));
        }
    }
}

/// How many seconds a call may take that has no deadline of its own and is held up by nothing; a little more
/// than a client waits unless it is told otherwise.
const PATIENCE: usize = 70;
/// How many milliseconds it takes at most until whoever does not read is cut off.
const CUT_OFF_WITHIN: u64 = 45_000;
/// How many milliseconds after a call timed out its connection is known to be dead.
const PING_WITHIN: u64 = 30_000;
/// How many milliseconds a listener may take to come back.
const BACK_WITHIN: u64 = 15_000;
