//! The SDK's own client: whatever happens to its token, its calls are answered, and nobody is asked twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::exchange::Dialect;
use bowline::{Client, Error};
use bowline_auth::client::{OAuth, OwnBrowser};
use bowline_auth::server::ResourceServer;
use bowline_example_authorization_server::User;

use crate::world::{By, World};

/// Somebody at a client, who counts how often they are asked.
#[derive(Clone, Default)]
struct Ada {
    asked: Arc<AtomicUsize>,
}

impl Ada {
    /// Connects a client that has her agree to what it needs.
    async fn connect(&self, world: &World, version: &str) -> Client {
        let asked = self.asked.clone();
        let browser = OwnBrowser::new(CALLBACK, move |url: String| {
            asked.fetch_add(1, Ordering::Relaxed);
            async move { User::named("ada").visit(&url).await }
        });
        let oauth = OAuth::new(&world.resource).name("test").user_agent(browser);
        let connect = Client::connect(&world.resource).speaking(version);
        connect.authorizer(oauth).await.unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn versions() -> impl Iterator<Item = &'static str> {
    Dialect::ALL.iter().map(|dialect| dialect.version)
}

#[tokio::test]
async fn a_call_that_needs_a_token_gets_one_and_the_next_has_it() {
    for version in versions() {
        for by in [By::Keys, By::Asking] {
            let (world, ada) = (World::new(by).await, Ada::default());
            let client = ada.connect(&world, version).await;

            for _ in 0..3 {
                let name = client.call_tool("whoami", ()).await.unwrap().text();
                assert_eq!(name, format!("{} ada", world.issuer), "{version}");
            }

            assert_eq!(ada.asked(), 1, "{version}");
            client.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_token_that_expires_on_the_way_is_renewed_without_asking() {
    for version in versions() {
        let (world, ada) = (World::new(By::Keys).await, Ada::default());
        let client = ada.connect(&world, version).await;
        client.call_tool("whoami", ()).await.unwrap();

        for _ in 0..3 {
            world.advance(300);
            client.call_tool("whoami", ()).await.unwrap();
        }

        assert_eq!(ada.asked(), 1, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn many_calls_that_meet_the_end_of_a_token_renew_it_once() {
    for version in versions() {
        // A refresh token that is used twice ends the whole family, so that renewing twice would be noticed.
        let (world, ada) = (World::new(By::Asking).await, Ada::default());
        let client = ada.connect(&world, version).await;
        client.call_tool("whoami", ()).await.unwrap();

        world.advance(300);
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.call_tool("whoami", ()).await.map(drop) })
            })
            .collect();

        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(ada.asked(), 1, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_rotated_key_goes_unnoticed() {
    for version in versions() {
        let (world, ada) = (World::new(By::Keys).await, Ada::default());
        let client = ada.connect(&world, version).await;
        client.call_tool("whoami", ()).await.unwrap();

        world.authorization.rotate_key();
        client.call_tool("whoami", ()).await.unwrap();
        world.authorization.retire_old_keys();
        world.advance(300);
        client.call_tool("whoami", ()).await.unwrap();

        assert_eq!(ada.asked(), 1, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn whoever_takes_the_token_back_is_asked_again() {
    for version in versions() {
        let (world, ada) = (World::new(By::Asking).await, Ada::default());
        let client = ada.connect(&world, version).await;
        client.call_tool("whoami", ()).await.unwrap();

        world.authorization.revoke_everything();
        client.call_tool("whoami", ()).await.unwrap();

        assert_eq!(ada.asked(), 2, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_tool_that_needs_more_is_asked_for_when_it_is_called() {
    for version in versions() {
        let (world, ada) = (World::new(By::Keys).await, Ada::default());
        let client = ada.connect(&world, version).await;
        let tools = client.list_tools().await.unwrap();
        assert_eq!(ada.asked(), 1, "{version}");

        let written = client.call_tool("write", ()).await.unwrap().text();
        client.call_tool("whoami", ()).await.unwrap();

        assert_eq!(tools.len(), 2);
        assert_eq!(written, "written", "{version}");
        assert_eq!(ada.asked(), 2, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn where_tokens_are_bound_to_keys_every_request_proves_that_it_has_the_key() {
    for version in versions() {
        let bound = |guard: ResourceServer| guard.require_dpop().dpop_nonces([7; 32]);
        let world = World::guarded(By::Keys, bound).await;
        let ada = Ada::default();
        let client = ada.connect(&world, version).await;

        for _ in 0..3 {
            client.call_tool("whoami", ()).await.unwrap();
        }
        let written = client.call_tool("write", ()).await.unwrap().text();

        assert_eq!(written, "written", "{version}");
        assert_eq!(ada.asked(), 2, "{version}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn somebody_who_says_no_is_not_asked_over_and_over() {
    let (world, ada) = (World::new(By::Keys).await, Ada::default());
    let asked = ada.asked.clone();
    let browser = OwnBrowser::new(CALLBACK, move |url: String| {
        asked.fetch_add(1, Ordering::Relaxed);
        async move { User::named("ada").refuse(&url).await }
    });
    let oauth = OAuth::new(&world.resource).user_agent(browser);
    let connect = Client::connect(&world.resource).speaking(Dialect::LATEST.version);
    let client = connect.authorizer(oauth).await.unwrap();

    let refused = client.call_tool("whoami", ()).await;

    assert!(
        matches!(refused, Err(Error::Unauthorized { .. })),
        "{refused:?}"
    );
    assert_eq!(ada.asked(), 1);
}

const CALLBACK: &str = "http://127.0.0.1:7/callback";
