//! Calls that are started, refused and dropped in random order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_auth::client::EmbeddedBrowser;

use crate::fake_servers::FakeServers;
use crate::{Window, connect, oauth};

#[tokio::test]
async fn dropped_calls_cause_no_concurrent_prompts_and_no_reused_refresh_token() {
    let (mut dropped, mut refreshed, mut prompted) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let servers = FakeServers::default();
        {
            let mut state = servers.state();
            state.delay_seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // Every other token must be refreshed before it is used.
            state.lifetime = (seed % 2) * 3600;
        }
        let windows = WindowCounter::default();
        let client = connect(
            &servers,
            oauth(&servers).user_agent(windows.browser(&servers)),
        )
        .await;

        for _ in 0..3 {
            let calls: Vec<_> = (0..6)
                .map(|_| tokio::spawn(client.call_tool("x", ()).start()))
                .collect();
            for (at, call) in calls.into_iter().enumerate() {
                servers.yield_randomly().await;
                if at % 3 == 0 {
                    call.abort();
                    dropped += usize::from(call.await.is_err());
                } else {
                    call.await.unwrap().unwrap();
                }
            }
            servers.state().valid_tokens.clear();
        }

        assert_eq!(windows.max_open.load(Ordering::SeqCst), 1, "seed {seed}");
        assert_eq!(servers.state().reused, 0, "seed {seed}");
        refreshed += servers.count("refresh_token");
        prompted += servers.count("consent");
    }
    assert!(
        dropped > 0 && refreshed > 0 && prompted > 0,
        "every case occurred"
    );
}

/// Counts the windows that are open at the same time.
#[derive(Default)]
struct WindowCounter {
    open: Arc<AtomicUsize>,
    max_open: Arc<AtomicUsize>,
}

impl WindowCounter {
    fn browser(&self, servers: &FakeServers) -> EmbeddedBrowser {
        let (servers, open, max_open) = (servers.clone(), self.open.clone(), self.max_open.clone());
        EmbeddedBrowser::new("http://127.0.0.1:7/callback", move |url: String| {
            let (servers, window) = (servers.clone(), Window::open(&open));
            max_open.fetch_max(open.load(Ordering::SeqCst), Ordering::SeqCst);
            async move {
                servers.yield_randomly().await;
                drop(window);
                Ok(servers.consent(&url))
            }
        })
    }
}

const SEEDS: u64 = 100;
