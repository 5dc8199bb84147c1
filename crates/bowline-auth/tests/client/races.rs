//! Calls that come, are refused and are let go of in every order that chance brings about.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_auth::client::OwnBrowser;

use crate::world::World;
use crate::{Window, connect, oauth};

#[tokio::test]
async fn whatever_is_let_go_of_nobody_is_asked_twice_at_once_and_no_refresh_token_is_used_twice() {
    let (mut dropped, mut renewed, mut asked) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let world = World::default();
        {
            let mut state = world.state();
            state.chance = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // Every other token has to be renewed before it is shown.
            state.lifetime = (seed % 2) * 3600;
        }
        let windows = Windows::default();
        let client = connect(&world, oauth(&world).user_agent(windows.browser(&world))).await;

        for _ in 0..3 {
            let calls: Vec<_> = (0..6)
                .map(|_| tokio::spawn(client.call_tool("x", ()).start()))
                .collect();
            for (at, call) in calls.into_iter().enumerate() {
                world.dawdle().await;
                if at % 3 == 0 {
                    call.abort();
                    dropped += usize::from(call.await.is_err());
                } else {
                    call.await.unwrap().unwrap();
                }
            }
            world.state().good.clear();
        }

        assert_eq!(windows.most.load(Ordering::SeqCst), 1, "seed {seed}");
        assert_eq!(world.state().reused, 0, "seed {seed}");
        renewed += world.count("refresh_token");
        asked += world.count("person");
    }
    assert!(
        dropped > 0 && renewed > 0 && asked > 0,
        "or nothing was shown"
    );
}

/// How many windows were open at the same time, at most.
#[derive(Default)]
struct Windows {
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Windows {
    fn browser(&self, world: &World) -> OwnBrowser {
        let (world, open, most) = (world.clone(), self.open.clone(), self.most.clone());
        OwnBrowser::new("http://127.0.0.1:7/callback", move |url: String| {
            let (world, window) = (world.clone(), Window::open(&open));
            most.fetch_max(open.load(Ordering::SeqCst), Ordering::SeqCst);
            async move {
                world.dawdle().await;
                drop(window);
                Ok(world.agree(&url))
            }
        })
    }
}

const SEEDS: u64 = 100;
