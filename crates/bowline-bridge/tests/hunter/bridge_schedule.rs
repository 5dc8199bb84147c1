//! One schedule: a random sequence of application calls, deliveries on both networks, faults and passing of time.

use std::time::Duration;

use crate::bridge_scene::BridgeFault;
use crate::handlers::{HandlerStep, Job, sleep_ms};
use crate::schedule_log::AllowedFailure;
use crate::tracked_call::{CallSettings, TrackedCall};
use crate::world::World;

/// A schedule that is running.
pub(crate) struct BridgeSchedule {
    pub(crate) world: World,
    pub(crate) calls: Vec<ScheduledCall>,
    last_number: usize,
}

/// A call, and whether its handler asks the client.
pub(crate) struct ScheduledCall {
    pub(crate) call: TrackedCall,
    pub(crate) asks: bool,
}

impl BridgeSchedule {
    pub(crate) fn new(world: World) -> Self {
        Self {
            world,
            calls: Vec::new(),
            last_number: 0,
        }
    }

    pub(crate) async fn run(&mut self) {
        let steps = 8 + self.world.random.below(34);
        for _ in 0..steps {
            self.step().await;
            if self.world.random.one_in(2) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn step(&mut self) {
        let random = self.world.random.clone();
        match random.below(32) {
            0..=4 => self.call(),
            5..=7 => self.abandon(),
            8 => self.start_polling(),
            9..=10 => self.release(),
            11..=12 => self.pass_time().await,
            13 if self.world.config.fault != BridgeFault::None => self.inject_fault(),
            13..=26 => {
                let networks = self.world.networks();
                random.pick(&networks).deliver();
            }
            _ => {
                for _ in 0..=random.below(4) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn call(&mut self) {
        let random = &self.world.random;
        let party = random.below(self.world.parties.len());
        let Some(client) = self.world.parties[party].client.clone() else {
            return;
        };
        self.last_number += 1;
        let name = self.world.parties[party].name;
        let job = Job {
            tag: format!("{name}{}", self.last_number),
            plan: self.plan(),
        };
        let asks = job
            .plan
            .iter()
            .any(|step| matches!(step, HandlerStep::Ask(_)));
        let others = self.calls.iter().map(|it| &it.call);
        let others = others.filter(|call| call.party == name);
        let settings = CallSettings::random(random, self.world.config.front, others);
        let is_polled = !random.one_in(4);
        let mut call = TrackedCall::start(&client, name, job, settings, &self.world.log);
        if is_polled {
            call.start_polling();
        }
        self.calls.push(ScheduledCall { call, asks });
    }

    fn plan(&self) -> Vec<HandlerStep> {
        let random = &self.world.random;
        (0..random.below(4))
            .map(|_| match random.below(10) {
                0..=1 => HandlerStep::Yield,
                2..=3 => HandlerStep::Idle(random.below(300) as u64),
                4 => HandlerStep::Progress,
                5..=6 => HandlerStep::Wait,
                _ if self.world.config.supports_elicitation() => {
                    HandlerStep::Ask(random.below(40) as u64)
                }
                _ => HandlerStep::Wait,
            })
            .collect()
    }

    fn abandon(&mut self) {
        let calls = self.calls.iter_mut().map(|it| &mut it.call);
        let pending: Vec<_> = calls.filter(|call| call.is_pending()).collect();
        if pending.is_empty() {
            return;
        }
        let at = self.world.random.below(pending.len());
        let has_reason = self.world.random.one_in(3);
        if let Some(call) = pending.into_iter().nth(at) {
            call.abandon(has_reason.then_some("no longer wanted"));
        }
    }

    fn start_polling(&mut self) {
        let mut calls = self.calls.iter_mut().map(|it| &mut it.call);
        if let Some(call) = calls.find(|call| call.is_unpolled()) {
            call.start_polling();
        }
    }

    fn release(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let tag = &self.calls[self.world.random.below(self.calls.len())]
            .call
            .tag;
        self.world.log.note(format_args!("{tag} is released"));
        self.world.release_gate.release(tag);
    }

    async fn pass_time(&mut self) {
        let random = &self.world.random;
        let millis = match random.below(3) {
            0 => 1 + random.below(5),
            1 => 1 + random.below(60),
            _ => 1 + random.below(400),
        };
        self.world.log.note(format_args!("{millis} ms pass"));
        sleep_ms(millis as u64).await;
    }

    fn inject_fault(&mut self) {
        let world = &mut self.world;
        world.log.allow(AllowedFailure::Any);
        if world.config.fault == BridgeFault::Restart {
            world.log.note("the server restarts");
            return world.restart_server();
        }
        let party = world.random.below(world.parties.len());
        match world.random.below(8) {
            0 => {
                let party = &mut world.parties[party];
                world.log.note(format_args!("{} closes", party.name));
                let client = party.client.take();
                client.map(|client| tokio::spawn(client.close()));
            }
            1 => {
                let party = &mut world.parties[party];
                world.log.note(format_args!("{} is dropped", party.name));
                party.client = None;
            }
            2 => {
                let grace = world.random.below(100) as u64;
                world
                    .log
                    .note(format_args!("the server shuts down in {grace} ms"));
                world.upstream.shut_down(Duration::from_millis(grace));
            }
            _ => {
                let networks = world.networks();
                world.random.pick(&networks).break_pipe();
            }
        }
    }
}
