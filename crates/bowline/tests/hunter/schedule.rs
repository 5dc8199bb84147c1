//! One schedule: a random sequence of application calls, deliveries, faults and passing of time.

use std::time::Duration;

use crate::handlers::{HandlerStep, Job, sleep_ms};
use crate::scene::Fault;
use crate::test_setup::TestSetup;
use crate::tracked_call::{CallSettings, TrackedCall};
use crate::update_listener::UpdateListener;

/// A schedule that is running.
pub(crate) struct Schedule {
    pub(crate) setup: TestSetup,
    pub(crate) calls: Vec<TrackedCall>,
    pub(crate) listeners: Vec<UpdateListener>,
    has_faults: bool,
    /// Whether stalled readers never resume.
    pub(crate) is_stalled_for_good: bool,
    last_number: usize,
}

impl Schedule {
    pub(crate) fn new(setup: TestSetup) -> Self {
        let has_faults = setup.config.fault != Fault::Teardown || setup.random.one_in(4);
        Self {
            setup,
            calls: Vec::new(),
            listeners: Vec::new(),
            has_faults,
            is_stalled_for_good: false,
            last_number: 0,
        }
    }

    pub(crate) async fn run(&mut self) {
        let fault = self.setup.config.fault;
        if fault != Fault::Teardown && (fault == Fault::Burst || self.setup.random.one_in(2)) {
            self.start_with_listeners().await;
        }
        let steps = 8 + self.setup.random.below(34);
        for _ in 0..steps {
            self.step().await;
            if self.setup.random.one_in(2) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn step(&mut self) {
        let random = self.setup.random.clone();
        match random.below(32) {
            0..=4 => self.call(),
            5..=7 => self.abandon(),
            8 => self.start_polling(),
            9 => self.listen(),
            10 => {
                let uri: &str = random.pick::<&str>(&RESOURCE_URIS);
                self.announce(uri);
            }
            11 => self.stop_listening(),
            12..=13 => self.release(),
            14..=15 => self.pass_time().await,
            16 if self.has_faults => self.inject_fault().await,
            17 if self.setup.config.fault != Fault::Teardown => self.inject_fault().await,
            16..=25 => self.setup.network.deliver(),
            _ => {
                for _ in 0..=random.below(4) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn call(&mut self) {
        let random = &self.setup.random;
        let party = random.below(self.setup.parties.len());
        let Some(client) = self.setup.parties[party].client.clone() else {
            return;
        };
        self.last_number += 1;
        let name = self.setup.parties[party].name;
        let job = Job {
            tag: format!("{name}{}", self.last_number),
            plan: self.plan(),
        };
        let others = self.calls.iter().filter(|call| call.party == name);
        let settings = CallSettings::random(random, self.setup.config, others);
        let is_polled = !random.one_in(4);
        let mut call = TrackedCall::start(&client, name, job, settings, &self.setup.log);
        if is_polled {
            call.start_polling();
        }
        self.calls.push(call);
    }

    fn plan(&self) -> Vec<HandlerStep> {
        let random = &self.setup.random;
        (0..random.below(4))
            .map(|_| match random.below(10) {
                0..=1 => HandlerStep::Yield,
                2..=3 => HandlerStep::Idle(random.below(300) as u64),
                4..=5 => HandlerStep::Progress,
                6..=7 => HandlerStep::Wait,
                _ if self.setup.config.supports_elicitation() => {
                    HandlerStep::Ask(random.below(40) as u64)
                }
                _ => HandlerStep::Wait,
            })
            .collect()
    }

    fn abandon(&mut self) {
        let pending: Vec<_> = self
            .calls
            .iter_mut()
            .filter(|call| call.is_pending())
            .collect();
        if pending.is_empty() {
            return;
        }
        let at = self.setup.random.below(pending.len());
        let has_reason = self.setup.random.one_in(3);
        if let Some(call) = pending.into_iter().nth(at) {
            call.abandon(has_reason.then_some("no longer wanted"));
        }
    }

    fn start_polling(&mut self) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.is_unpolled()) {
            call.start_polling();
        }
    }

    fn listen(&mut self) {
        let random = &self.setup.random;
        let party = &self.setup.parties[random.below(self.setup.parties.len())];
        let Some(client) = party.client.clone() else {
            return;
        };
        self.last_number += 1;
        let tag = format!("{}{}", party.name, self.last_number);
        let uri = *random.pick(&RESOURCE_URIS);
        let TestSetup {
            config,
            log,
            network,
            ..
        } = &self.setup;
        let owner = (party.name, tag);
        let listener = UpdateListener::start(client, owner, uri, *config, log, network);
        self.listeners.push(listener);
    }

    /// Subscribes one or two listeners before any fault.
    async fn start_with_listeners(&mut self) {
        self.setup.network.deliver_immediately();
        for _ in 0..=self.setup.random.below(2) {
            self.listen();
        }
        sleep_ms(50).await;
        self.setup.network.hold();
    }

    /// Announces a change of a resource.
    pub(crate) fn announce(&self, uri: &str) {
        let number = self.setup.log.record_change();
        self.setup
            .log
            .note(format_args!("{uri} changes, which is change {number}"));
        let listeners = self.listeners.iter();
        listeners.for_each(|listener| listener.expect_change(uri, number));
        self.setup.server.changed().resource_updated(uri);
    }

    fn stop_listening(&mut self) {
        if !self.listeners.is_empty() {
            let at = self.setup.random.below(self.listeners.len());
            drop(self.listeners.remove(at));
        }
    }

    fn release(&mut self) {
        if self.last_number > 0 {
            let call = self.setup.random.below(self.calls.len().max(1));
            if let Some(call) = self.calls.get(call) {
                self.setup
                    .log
                    .note(format_args!("{} is released", call.tag));
                self.setup.release_gate.release(&call.tag);
            }
        }
    }

    async fn pass_time(&mut self) {
        let random = &self.setup.random;
        let millis = match random.below(3) {
            0 => 1 + random.below(5),
            1 => 1 + random.below(60),
            _ => 1 + random.below(400),
        };
        self.setup.log.note(format_args!("{millis} ms pass"));
        if self.setup.config.is_legacy_http() && !CANCELS_MAY_OVERTAKE {
            // A cancel is posted at most this long after its request, and would overtake a POST held back for longer.
            let age = CANCEL_DELAY.saturating_sub(Duration::from_millis(millis as u64));
            self.setup.network.deliver_older_than(age);
        }
        sleep_ms(millis as u64).await;
    }
}

/// The resources that change.
pub(crate) const RESOURCE_URIS: [&str; 2] = ["thing:///1", "thing:///2"];
/// Whether the network may hold a legacy POST back until its cancel, which is another POST, overtakes it. The server
/// keeps early cancels, so this must do no harm.
pub(crate) const CANCELS_MAY_OVERTAKE: bool = true;
/// A little less than the time that a client waits for the response head of a request before it posts its cancel.
const CANCEL_DELAY: Duration = Duration::from_millis(99);
