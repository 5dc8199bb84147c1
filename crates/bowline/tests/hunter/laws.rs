//! What must hold when a schedule is over: nobody waits, nobody works, and nothing is left.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::schedule::Schedule;
use crate::work::{Act, Job, pass};

impl Schedule {
    /// Lets everything come to its end, and sees to it that it does.
    pub(crate) async fn end(mut self) {
        self.world.network.flow();
        self.world.ledger.note("everything flows");
        pass(500).await;
        self.check_that_work_has_stopped();
        self.listeners.iter().for_each(|listener| listener.check());
        self.listeners.clear();
        self.let_calls_finish().await;
        self.check_that_life_goes_on().await;
        self.check_tables();
        self.leave().await;
    }

    /// What nobody waits for is not worked on, while others go on.
    fn check_that_work_has_stopped(&self) {
        let ledger = &self.world.ledger;
        // Whoever was told to stop over a pipe that was cut may not know; it learns when its client leaves.
        if ledger.is_wrecked() {
            return;
        }
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
        // The responses to cancelled POSTs are drained for a while.
        pass(6000).await;
    }

    /// Every client can still call, by any id that was used before.
    async fn check_that_life_goes_on(&self) {
        if self.world.ledger.is_wrecked() {
            return;
        }
        for party in &self.world.parties {
            let Some(client) = &party.client else {
                continue;
            };
            let own = self.calls.iter().filter(|call| call.party == party.name);
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
        let in_flight = self.world.service.in_flight();
        if in_flight > 0 {
            ledger.broken(law, format_args!("the service has {in_flight} requests"));
        }
    }

    /// Everybody leaves; then no handler, no conversation and no task may be left.
    async fn leave(self) {
        let Self {
            world,
            calls,
            listeners,
            ..
        } = self;
        drop((calls, listeners));
        for party in world.parties {
            if let Some(client) = party.client {
                let closed = tokio::time::timeout(Duration::from_secs(5), client.close()).await;
                if closed.is_err() {
                    world.ledger.broken("a client closes in time", party.name);
                }
            }
        }
        pass(3000).await;
        let legacy = world.service.sessions();
        if legacy > 0 && !world.ledger.is_wrecked() {
            world.ledger.broken(
                "who closes is forgotten",
                format_args!("{legacy} are remembered"),
            );
        }
        world.server.shut_down(Duration::ZERO);
        drop((world.server, world.service));
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
