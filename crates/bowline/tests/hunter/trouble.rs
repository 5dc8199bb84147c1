//! What goes wrong in a schedule that no application did, and what that permits.

use std::time::Duration;

use crate::ledger::Permit;
use crate::scene::{Carrier, Trouble};
use crate::schedule::{Schedule, THINGS};

impl Schedule {
    /// Makes the trouble of this schedule's scene.
    pub(crate) async fn make_trouble(&mut self) {
        match self.world.column.trouble {
            Trouble::Plain => self.wreck(),
            Trouble::Restart => self.restart(),
            Trouble::Forgotten => self.forget().await,
            Trouble::Goodbye => self.say_goodbye(),
            Trouble::HalfDead => self.kill_a_direction(),
            Trouble::Unread => self.stop_reading(),
            Trouble::Burst => self.burst().await,
            Trouble::Batches => self.batch(),
        }
    }

    /// The calls that are under way are lost with the server, and so are the subscriptions. What comes after is
    /// not excused.
    fn restart(&mut self) {
        let ledger = &self.world.ledger;
        ledger.note("the server restarts");
        ledger.permit(Permit::SubscriptionLost);
        ledger.permit(Permit::Replay);
        self.calls.iter().for_each(|call| call.excuse());
        self.listeners.iter().for_each(|it| it.disrupt());
        self.world.restart();
    }

    /// The same for one party, whose connections stay.
    async fn forget(&mut self) {
        let at = self.world.chance.below(self.world.parties.len());
        let party = self.world.parties[at].name;
        let ledger = &self.world.ledger;
        let own = self.calls.iter().filter(|call| call.party == party);
        own.for_each(|call| call.excuse());
        let own = self.listeners.iter().filter(|it| it.party() == party);
        own.for_each(|it| it.disrupt());
        ledger.permit(Permit::SubscriptionLost);
        ledger.permit(Permit::Replay);
        let is_forgotten = self.world.door.forget(party).await;
        ledger.note(format_args!("{party} is forgotten: {is_forgotten}"));
    }

    /// Costs nothing over HTTP/2, which tells which requests were not looked at. HTTP/1.1 does not, and neither does
    /// a connection on which nothing was read: a request that was not looked at may be lost there.
    fn say_goodbye(&mut self) {
        let connections = self.world.door.connections();
        if connections == 0 {
            return;
        }
        let at = self.world.chance.below(connections);
        let ledger = &self.world.ledger;
        ledger.note(format_args!("connection {at} says goodbye"));
        ledger.permit(Permit::Replay);
        let pipe = self.world.door.say_goodbye(at);
        let has_begun = pipe.is_some_and(|pipe| self.world.network.has_begun(pipe));
        if self.world.column.carrier == Carrier::Http1 || !has_begun {
            ledger.permit(Permit::LostUnbegun);
        }
    }

    /// Whatever is on the path is lost, but its end is on time, and what comes later finds another path.
    fn kill_a_direction(&mut self) {
        let ledger = &self.world.ledger;
        ledger.permit(Permit::TimeOut);
        ledger.permit(Permit::ConnectionLost);
        ledger.permit(Permit::SubscriptionLost);
        ledger.permit(Permit::Replay);
        self.listeners.iter().for_each(|it| it.disrupt());
        self.world.network.kill();
    }

    /// A reader that pauses costs nothing; one that never reads again is cut off in time.
    fn stop_reading(&mut self) {
        let ledger = &self.world.ledger;
        ledger.permit(Permit::Lag);
        if !self.is_unread_for_good && self.world.chance.one_in(2) {
            self.is_unread_for_good = true;
            ledger.note("whoever stops reading never reads again");
        }
        if self.is_unread_for_good {
            ledger.permit(Permit::TimeOut);
            ledger.permit(Permit::ConnectionLost);
            ledger.permit(Permit::SubscriptionLost);
            self.listeners.iter().for_each(|it| it.disrupt());
        }
        ledger.permit(Permit::Replay);
        self.world.network.stop_reading(self.is_unread_for_good);
    }

    /// Changes something more often than a listener reads of it.
    async fn burst(&mut self) {
        let chance = self.world.chance.clone();
        self.world.ledger.permit(Permit::Lag);
        if !self.listeners.is_empty() && chance.one_in(2) {
            let at = chance.below(self.listeners.len());
            self.listeners[at].nap(chance.one_in(2));
        }
        let uri = *chance.pick(&THINGS);
        let count = *chance.pick(&[10, 10, 300, 1500]);
        // As many as a server can take in at once, or many more.
        let at_once = *chance.pick(&[50, 200, 2000]);
        self.world
            .ledger
            .note(format_args!("{uri} changes {count} times"));
        for number in 1..=count {
            self.announce(uri);
            if number % at_once == 0 {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn batch(&mut self) {
        if let Some(batcher) = &mut self.world.batcher {
            batcher.step();
        }
    }

    fn wreck(&mut self) {
        self.world.ledger.permit(Permit::Anything);
        match self.world.chance.below(6) {
            0 => {
                let at = self.world.chance.below(self.world.parties.len());
                let party = &mut self.world.parties[at];
                self.world
                    .ledger
                    .note(format_args!("{} closes", party.name));
                party
                    .client
                    .take()
                    .map(|client| tokio::spawn(client.close()));
            }
            1 => {
                let at = self.world.chance.below(self.world.parties.len());
                let party = &mut self.world.parties[at];
                self.world
                    .ledger
                    .note(format_args!("{} is dropped", party.name));
                party.client = None;
            }
            2 => {
                let grace = self.world.chance.below(100) as u64;
                self.world
                    .ledger
                    .note(format_args!("the server shuts down in {grace} ms"));
                self.world.shut_down(Duration::from_millis(grace));
            }
            _ => self.world.network.wreck(),
        }
    }
}
