//! How often a person is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::world::World;
use crate::{Deciding, Decision, connect, oauth, why};

#[tokio::test]
async fn a_server_that_accepts_no_token_cannot_have_a_person_asked_for_ever() {
    let world = World::default();
    let hour = Duration::from_secs(3600);
    let client = connect(&world, oauth(&world).max_prompts(2, hour)).await;
    world.state().accepts = false;

    let mut reasons = Vec::new();
    for _ in 0..6 {
        let outcome = client.call_tool("x", ()).await;
        if let Some(source) = std::error::Error::source(&outcome.unwrap_err()) {
            reasons.push(source.to_string());
        }
    }

    assert_eq!(world.count("person"), 2);
    assert_eq!(
        reasons.last().unwrap(),
        "a person was asked 2 times within 3600s, and is not asked again by itself"
    );
}

#[tokio::test]
async fn what_a_person_denied_is_not_asked_for_by_the_next_call() {
    let world = World::default();
    let deciding = Deciding::new(&world);
    let oauth = Arc::new(oauth(&world).user_agent(deciding.browser()));
    let client = connect(&world, oauth.clone()).await;
    deciding.decide(Decision::No);

    for _ in 0..3 {
        let reason = why(client.call_tool("x", ()).await);
        assert_eq!(reason, "the authorization server says `access_denied`");
    }
    let asked_by_calls = deciding.asked.load(Ordering::SeqCst);
    deciding.decide(Decision::Yes);
    let still = client.call_tool("x", ()).await;
    oauth.authorize().await.unwrap();
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(asked_by_calls, 1);
    assert!(still.is_err());
    assert_eq!(deciding.asked.load(Ordering::SeqCst), 2);
}
