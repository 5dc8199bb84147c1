//! Results that stay good, and those that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::client::{Changes, Connect, Draft, List, MemoryCache};
use bowline::exchange::TraceContext;
use bowline::testing::{self, Scripted};
use bowline::types::ListToolsRequest;
use bowline::{Client, Error};
use serde_json::{Value, json};

use super::{modern, modern_with, tool};

/// Lists the tools while the server, asked or not, is ready to answer with `page`. Whether it was asked.
async fn asks(client: &Client, server: &mut Scripted, page: Value) -> bool {
    let listing = client.list_tools().into_future();
    let mut was_asked = false;
    let script = async {
        server.expect("tools/list").await.answer(page);
        was_asked = true;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        tools = listing => drop(tools.unwrap()),
        () = script => {}
    }
    was_asked
}

fn page(ttl: i64, scope: &str) -> Value {
    json!({"tools": [tool("a")], "ttlMs": ttl, "cacheScope": scope})
}

#[tokio::test(start_paused = true)]
async fn a_result_is_used_again_while_it_is_fresh_and_not_a_moment_longer() {
    let (client, mut server) = modern().await;

    assert!(asks(&client, &mut server, page(5_000, "private")).await);
    assert!(!asks(&client, &mut server, page(0, "private")).await);
    tokio::time::advance(Duration::from_millis(5_001)).await;

    assert!(asks(&client, &mut server, page(0, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn a_lifetime_that_no_clock_can_represent_is_a_long_one() {
    for ttl in ["18446744073709551615", "9e15"] {
        let (client, mut server) = modern().await;
        let mut page = page(0, "private");
        page["ttlMs"] = serde_json::from_str(ttl).unwrap();

        assert!(asks(&client, &mut server, page.clone()).await);
        tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;

        assert!(!asks(&client, &mut server, page).await, "{ttl}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_used_again_in_another_trace() {
    let count = AtomicU64::new(1);
    let (client, mut server) = modern_with(move |connect| {
        connect.trace(move || {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            TraceContext::new(format!("00-{nth:032x}-00000000000000ff-01")).ok()
        })
    })
    .await;

    assert!(asks(&client, &mut server, page(5_000, "private")).await);
    assert!(!asks(&client, &mut server, page(0, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_stale_at_once_is_not_kept() {
    for ttl in [json!(0), json!(-5), json!(null), json!("soon")] {
        let (client, mut server) = modern().await;
        let result = json!({"contents": [], "ttlMs": ttl, "cacheScope": "public"});

        for _ in 0..2 {
            // `soon` does not have the shape of a result's member, which is told to the caller.
            let read = client
                .raw("resources/read", json!({"uri": "file:///a"}))
                .start();
            server.expect("resources/read").await.answer(result.clone());
            read.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_question_gets_another_answer() {
    let (client, mut server) = modern().await;

    for uri in ["file:///a", "file:///b"] {
        let read = client.read_resource(uri).into_future();
        let script = async {
            let asked = server.expect("resources/read").await;
            let text = asked.params()["uri"].clone();
            let contents = json!([{"uri": uri, "text": text}]);
            asked.answer(json!({"contents": contents, "ttlMs": 9_000, "cacheScope": "public"}));
        };
        let (read, ()) = tokio::join!(read, script);

        assert_eq!(read.unwrap().contents[0].uri(), uri);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_forgotten_before_the_application_hears_of_it() {
    let (client, mut server) = modern().await;
    let subscribing = tokio::spawn(client.subscribe(Changes::new().tools()).into_future());
    let id = server.expect("subscriptions/listen").await.acknowledge();
    let mut changes = subscribing.await.unwrap().unwrap();
    assert!(asks(&client, &mut server, page(60_000, "public")).await);

    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    server.notify("notifications/tools/list_changed", json!({"_meta": meta}));
    changes.next().await.unwrap();

    assert!(asks(&client, &mut server, page(60_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn an_updated_resource_is_read_again_and_others_are_not() {
    let (client, mut server) = modern().await;
    let answer = json!({"contents": [], "ttlMs": 600_000, "cacheScope": "private"});
    for uri in ["file:///a", "file:///b"] {
        let read = client.read_resource(uri).start();
        server.expect("resources/read").await.answer(answer.clone());
        read.await.unwrap();
    }

    server.notify(
        "notifications/resources/updated",
        json!({"uri": "file:///a"}),
    );
    server.expect_nothing().await;

    client.read_resource("file:///b").await.unwrap();
    let again = client.read_resource("file:///a").start();
    server.expect("resources/read").await.answer(answer);
    again.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_change_overtook_is_not_kept() {
    let (client, mut server) = modern().await;

    let listing = client.list_tools().into_future();
    let script = async {
        let asked = server.expect("tools/list").await;
        let asked = asked.notify("notifications/tools/list_changed", json!({}));
        asked.answer(page(60_000, "public"));
    };
    let (tools, ()) = tokio::join!(listing, script);
    tools.unwrap();

    assert!(asks(&client, &mut server, page(60_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn a_private_result_is_for_one_principal_and_a_public_one_for_all() {
    for (scope, principals, is_shared) in [
        ("private", ["ann", "bob"], false),
        ("private", ["ann", "ann"], true),
        ("public", ["ann", "bob"], true),
    ] {
        let cache = Arc::new(MemoryCache::default());
        let of = |principal: &'static str| {
            let cache = cache.clone();
            modern_with(move |it| it.cache(cache).server_identity("one").principal(principal))
        };
        let (one, mut one_server) = of(principals[0]).await;
        let (other, mut other_server) = of(principals[1]).await;

        assert!(asks(&one, &mut one_server, page(60_000, scope)).await);
        let was_asked = asks(&other, &mut other_server, page(0, scope)).await;

        assert_eq!(was_asked, !is_shared, "{scope} for {principals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn private_results_of_nobody_in_particular_stay_with_their_client() {
    let cache = Arc::new(MemoryCache::default());
    let of_one_server = |it: Connect| it.cache(cache.clone()).server_identity("one");
    let (one, mut one_server) = modern_with(of_one_server).await;
    let (other, mut other_server) = modern_with(of_one_server).await;

    assert!(asks(&one, &mut one_server, page(60_000, "private")).await);

    assert!(asks(&other, &mut other_server, page(60_000, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn one_server_is_not_answered_for_by_another() {
    for names in [[Some("one"), Some("other")], [None, None]] {
        for scope in ["private", "public"] {
            let cache = Arc::new(MemoryCache::default());
            let of = |name: Option<&'static str>| {
                let cache = cache.clone();
                modern_with(move |it| {
                    let it = it.cache(cache).principal("ann");
                    match name {
                        Some(name) => it.server_identity(name),
                        None => it,
                    }
                })
            };
            let (one, mut one_server) = of(names[0]).await;
            let (other, mut other_server) = of(names[1]).await;

            assert!(asks(&one, &mut one_server, page(60_000, scope)).await);

            let was_asked = asks(&other, &mut other_server, page(60_000, scope)).await;
            assert!(was_asked, "{scope} results of {names:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_at_one_server_outdates_nothing_of_another() {
    let cache = Arc::new(MemoryCache::default());
    let of = |name: &'static str| {
        let cache = cache.clone();
        modern_with(move |it| it.cache(cache).server_identity(name))
    };
    let (one, mut one_server) = of("one").await;
    let (other, mut other_server) = of("other").await;
    assert!(asks(&one, &mut one_server, page(6_000_000, "public")).await);
    assert!(asks(&other, &mut other_server, page(6_000_000, "public")).await);

    one_server.notify("notifications/tools/list_changed", json!({}));
    one_server.expect_nothing().await;

    assert!(asks(&one, &mut one_server, page(6_000_000, "public")).await);
    assert!(!asks(&other, &mut other_server, page(6_000_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_becomes_somebody_else_loses_its_private_results() {
    let (client, mut server) = modern().await;
    assert!(asks(&client, &mut server, page(60_000, "private")).await);

    client.set_principal("somebody else");

    assert!(asks(&client, &mut server, page(60_000, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn refreshing_asks_and_keeps_and_going_without_the_cache_does_neither() {
    let (client, mut server) = modern().await;
    assert!(asks(&client, &mut server, page(60_000, "public")).await);
    let listed = async |list: Draft<List<ListToolsRequest>>, server: &mut Scripted, name: &str| {
        let listing = tokio::spawn(list.into_future());
        let page = json!({"tools": [tool(name)], "ttlMs": 60_000, "cacheScope": "public"});
        server.expect("tools/list").await.answer(page);
        listing.await.unwrap().unwrap()
    };

    let apart = listed(client.list_tools().uncached(), &mut server, "apart").await;
    let kept = client.list_tools().await.unwrap();
    let new = listed(client.list_tools().refresh(), &mut server, "new").await;
    let kept_now = client.list_tools().await.unwrap();

    assert_eq!((&*apart[0].name, &*kept[0].name), ("apart", "a"));
    assert_eq!((&*new[0].name, &*kept_now[0].name), ("new", "new"));
}

#[tokio::test(start_paused = true)]
async fn the_legacy_era_has_no_fresh_results() {
    let (client, mut server) = super::legacy(json!({"tools": {}})).await;

    assert!(asks(&client, &mut server, page(60_000, "public")).await);

    assert!(asks(&client, &mut server, page(60_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_retry_with_answers_is_not_kept() {
    let (wire, mut server) = testing::scripted();
    let connect = Client::over(wire).speaking("2026-07-28");
    let client = connect.await.unwrap();

    for _ in 0..2 {
        let read = tokio::spawn(client.read_resource("file:///a").into_future());
        let first = server.expect("resources/read").await;
        first.answer(json!({"resultType": "input_required", "requestState": "s"}));
        let retry = server.expect("resources/read").await;
        assert_eq!(retry.params()["requestState"], "s");
        retry.answer(json!({"contents": [], "ttlMs": 60_000, "cacheScope": "public"}));
        read.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_results_make_room() {
    let cache = Arc::new(MemoryCache::new(2, usize::MAX));
    let (client, mut server) = modern_with(|it| it.cache(cache.clone())).await;
    let answer = json!({"contents": [], "ttlMs": 60_000, "cacheScope": "public"});

    for uri in ["file:///a", "file:///b", "file:///c"] {
        let read = client.read_resource(uri).start();
        server.expect("resources/read").await.answer(answer.clone());
        read.await.unwrap();
    }

    assert_eq!(cache.len(), 2);
    client.read_resource("file:///c").await.unwrap();
    let oldest = client
        .read_resource("file:///a")
        .timeout(Duration::from_secs(1));
    assert!(matches!(oldest.await, Err(Error::Timeout { .. })));
}
