//! One schedule: what the applications do, what the network does and how time passes, as chance has it.

use std::time::Duration;

use crate::calling::{Calling, Terms};
use crate::listening::Listening;
use crate::scene::Trouble;
use crate::work::{Act, Job, pass};
use crate::world::World;

/// A schedule that is being played.
pub(crate) struct Schedule {
    pub(crate) world: World,
    pub(crate) calls: Vec<Calling>,
    pub(crate) listeners: Vec<Listening>,
    /// Whether anything may go wrong that no application did.
    has_trouble: bool,
    /// Whether a reader that stops reading never reads again.
    pub(crate) is_unread_for_good: bool,
    last_number: usize,
}

impl Schedule {
    pub(crate) fn new(world: World) -> Self {
        let has_trouble = world.column.trouble != Trouble::Plain || world.chance.one_in(4);
        Self {
            world,
            calls: Vec::new(),
            listeners: Vec::new(),
            has_trouble,
            is_unread_for_good: false,
            last_number: 0,
        }
    }

    pub(crate) async fn play(&mut self) {
        let trouble = self.world.column.trouble;
        if trouble != Trouble::Plain && (trouble == Trouble::Burst || self.world.chance.one_in(2)) {
            self.listen_in_peace().await;
        }
        let steps = 8 + self.world.chance.below(34);
        for _ in 0..steps {
            self.step().await;
            if self.world.chance.one_in(2) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn step(&mut self) {
        let chance = self.world.chance.clone();
        match chance.below(32) {
            0..=4 => self.call(),
            5..=7 => self.let_go(),
            8 => self.take_up(),
            9 => self.listen(),
            10 => {
                let uri: &str = chance.pick::<&str>(&THINGS);
                self.announce(uri);
            }
            11 => self.stop_listening(),
            12..=13 => self.release(),
            14..=15 => self.pass_time().await,
            16 if self.has_trouble => self.make_trouble().await,
            17 if self.world.column.trouble != Trouble::Plain => self.make_trouble().await,
            16..=25 => self.world.network.deliver(),
            _ => {
                for _ in 0..=chance.below(4) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn call(&mut self) {
        let chance = &self.world.chance;
        let party = chance.below(self.world.parties.len());
        let Some(client) = self.world.parties[party].client.clone() else {
            return;
        };
        self.last_number += 1;
        let name = self.world.parties[party].name;
        let job = Job {
            tag: format!("{name}{}", self.last_number),
            acts: self.acts(),
        };
        let others = self.calls.iter().filter(|call| call.party == name);
        let terms = Terms::by_chance(chance, self.world.column, others);
        let is_taken_up = !chance.one_in(4);
        let mut call = Calling::begin(&client, name, job, terms, &self.world.ledger);
        if is_taken_up {
            call.take_up();
        }
        self.calls.push(call);
    }

    fn acts(&self) -> Vec<Act> {
        let chance = &self.world.chance;
        (0..chance.below(4))
            .map(|_| match chance.below(10) {
                0..=1 => Act::Yield,
                2..=3 => Act::Take(chance.below(300) as u64),
                4..=5 => Act::Progress,
                6..=7 => Act::Wait,
                _ if self.world.column.can_ask() => Act::Ask(chance.below(40) as u64),
                _ => Act::Wait,
            })
            .collect()
    }

    fn let_go(&mut self) {
        let open: Vec<_> = self
            .calls
            .iter_mut()
            .filter(|call| call.is_open())
            .collect();
        if open.is_empty() {
            return;
        }
        let at = self.world.chance.below(open.len());
        let explicitly = self.world.chance.one_in(3);
        if let Some(call) = open.into_iter().nth(at) {
            call.let_go(explicitly.then_some("no longer wanted"));
        }
    }

    /// Polls a call that was only begun so far.
    fn take_up(&mut self) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.is_only_begun()) {
            call.take_up();
        }
    }

    fn listen(&mut self) {
        let chance = &self.world.chance;
        let party = &self.world.parties[chance.below(self.world.parties.len())];
        let Some(client) = party.client.clone() else {
            return;
        };
        self.last_number += 1;
        let who = (party.name, format!("{}{}", party.name, self.last_number));
        let uri = *chance.pick(&THINGS);
        let World {
            column,
            ledger,
            network,
            ..
        } = &self.world;
        let listener = Listening::begin(client, who, uri, *column, ledger, network);
        self.listeners.push(listener);
    }

    /// Begins with a listener or two that nothing keeps from listening.
    async fn listen_in_peace(&mut self) {
        self.world.network.flow();
        for _ in 0..=self.world.chance.below(2) {
            self.listen();
        }
        pass(50).await;
        self.world.network.hold();
    }

    /// Announces that something changed.
    pub(crate) fn announce(&self, uri: &str) {
        let number = self.world.ledger.change();
        self.world
            .ledger
            .note(format_args!("{uri} changes, which is change {number}"));
        let listeners = self.listeners.iter();
        listeners.for_each(|listener| listener.is_owed(uri, number));
        self.world.server.changed().resource_updated(uri);
    }

    fn stop_listening(&mut self) {
        if !self.listeners.is_empty() {
            let at = self.world.chance.below(self.listeners.len());
            drop(self.listeners.remove(at));
        }
    }

    fn release(&mut self) {
        if self.last_number > 0 {
            let call = self.world.chance.below(self.calls.len().max(1));
            if let Some(call) = self.calls.get(call) {
                self.world
                    .ledger
                    .note(format_args!("{} is released", call.tag));
                self.world.releases.release(&call.tag);
            }
        }
    }

    async fn pass_time(&mut self) {
        let chance = &self.world.chance;
        let millis = match chance.below(3) {
            0 => 1 + chance.below(5),
            1 => 1 + chance.below(60),
            _ => 1 + chance.below(400),
        };
        self.world.ledger.note(format_args!("{millis} ms pass"));
        if self.world.column.is_legacy_http() && !CANCELS_MAY_OVERTAKE {
            // A cancel is posted at most this long after its request. A network that holds a POST back for
            // longer lets its cancel overtake it.
            let age = HEAD_START.saturating_sub(Duration::from_millis(millis as u64));
            self.world.network.deliver_older_than(age);
        }
        pass(millis as u64).await;
    }
}

/// What can change.
pub(crate) const THINGS: [&str; 2] = ["thing:///1", "thing:///2"];
/// Whether the network may hold a legacy POST back for so long that its cancel, which is another POST, overtakes it.
/// A server that keeps early cancels is not hurt by that.
pub(crate) const CANCELS_MAY_OVERTAKE: bool = true;
/// A little less than a cancel waits for the head of a response.
const HEAD_START: Duration = Duration::from_millis(99);
