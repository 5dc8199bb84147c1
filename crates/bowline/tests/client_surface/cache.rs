//! The result cache: freshness, eviction, scopes and principals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::client::{
    Cache, CacheEntry, CacheKey, Change, ChangeFilter, ClientBuilder, List, MemoryCache,
    RequestBuilder,
};
use bowline::exchange::TraceContext;
use bowline::testing::{self, ScriptedPeer};
use bowline::types::ListToolsRequest;
use bowline::{Client, Error};
use serde_json::{Value, json};

use super::{modern, modern_with, tool};

/// Lists the tools; the server answers with `page` if it gets a request. Returns whether it got one.
async fn sends_request(client: &Client, server: &mut ScriptedPeer, page: Value) -> bool {
    let listing = client.list_tools().into_future();
    let mut is_requested = false;
    let script = async {
        server.expect("tools/list").await.answer(page);
        is_requested = true;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        tools = listing => drop(tools.unwrap()),
        () = script => {}
    }
    is_requested
}

fn page(ttl: i64, scope: &str) -> Value {
    json!({"tools": [tool("a")], "ttlMs": ttl, "cacheScope": scope})
}

/// A cache in which time passes only by [`AgingCache::age`].
#[derive(Default)]
struct AgingCache {
    entries: MemoryCache,
    millis: AtomicU64,
}

impl AgingCache {
    fn age(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Cache for AgingCache {
    fn get(&self, key: &CacheKey) -> Option<CacheEntry> {
        let mut entry = self.entries.get(key)?;
        entry.fresh_until -= Duration::from_millis(self.millis.load(Ordering::Relaxed));
        Some(entry)
    }

    fn insert(&self, key: CacheKey, entry: CacheEntry) {
        self.entries.insert(key, entry);
    }

    fn evict(&self, server: &str, change: &Change) {
        self.entries.evict(server, change);
    }
}

async fn with_aging_cache() -> (Client, ScriptedPeer, Arc<AgingCache>) {
    let cache = Arc::new(AgingCache::default());
    let shared = cache.clone();
    let (client, server) = modern_with(move |connect| connect.cache(shared)).await;
    (client, server, cache)
}

#[tokio::test(start_paused = true)]
async fn a_result_is_reused_until_its_ttl_expires() {
    let (client, mut server, cache) = with_aging_cache().await;

    assert!(sends_request(&client, &mut server, page(60_000, "private")).await);
    assert!(!sends_request(&client, &mut server, page(0, "private")).await);
    cache.age(60_001);

    assert!(sends_request(&client, &mut server, page(0, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn a_ttl_beyond_the_clock_range_is_a_long_one() {
    for ttl in ["18446744073709551615", "9e15"] {
        let (client, mut server, cache) = with_aging_cache().await;
        let mut page = page(0, "private");
        page["ttlMs"] = serde_json::from_str(ttl).unwrap();

        assert!(sends_request(&client, &mut server, page.clone()).await);
        cache.age(24 * 60 * 60 * 1000);

        assert!(!sends_request(&client, &mut server, page).await, "{ttl}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_reused_in_another_trace() {
    let count = AtomicU64::new(1);
    let (client, mut server) = modern_with(move |connect| {
        connect.trace(move || {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            TraceContext::new(format!("00-{nth:032x}-00000000000000ff-01")).ok()
        })
    })
    .await;

    assert!(sends_request(&client, &mut server, page(5_000, "private")).await);
    assert!(!sends_request(&client, &mut server, page(0, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn a_result_without_a_positive_ttl_is_not_cached() {
    for ttl in [json!(0), json!(-5), json!(null), json!("soon")] {
        let (client, mut server) = modern().await;
        let result = json!({"contents": [], "ttlMs": ttl, "cacheScope": "public"});

        for _ in 0..2 {
            // A typed request would fail on `"soon"`, so this one is untyped.
            let read = client
                .request_raw("resources/read", json!({"uri": "file:///a"}))
                .start();
            server.expect("resources/read").await.answer(result.clone());
            read.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_other_params_are_cached_separately() {
    let (client, mut server) = modern().await;

    for uri in ["file:///a", "file:///b"] {
        let read = client.read_resource(uri).into_future();
        let script = async {
            let request = server.expect("resources/read").await;
            let text = request.params()["uri"].clone();
            let contents = json!([{"uri": uri, "text": text}]);
            request.answer(json!({"contents": contents, "ttlMs": 9_000, "cacheScope": "public"}));
        };
        let (read, ()) = tokio::join!(read, script);

        assert_eq!(read.unwrap().contents[0].uri(), uri);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_evicted_before_the_subscription_reports_the_change() {
    let (client, mut server) = modern().await;
    let subscribing = tokio::spawn(client.subscribe(ChangeFilter::new().tools()).into_future());
    let id = server.expect("subscriptions/listen").await.acknowledge();
    let mut changes = subscribing.await.unwrap().unwrap();
    assert!(sends_request(&client, &mut server, page(60_000, "public")).await);

    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    server.notify("notifications/tools/list_changed", json!({"_meta": meta}));
    changes.next().await.unwrap();

    assert!(sends_request(&client, &mut server, page(60_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn an_updated_resource_is_evicted_and_others_are_not() {
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
async fn a_result_that_arrives_after_a_change_notification_is_not_cached() {
    let (client, mut server) = modern().await;

    let listing = client.list_tools().into_future();
    let script = async {
        let request = server.expect("tools/list").await;
        let request = request.notify("notifications/tools/list_changed", json!({}));
        request.answer(page(60_000, "public"));
    };
    let (tools, ()) = tokio::join!(listing, script);
    tools.unwrap();

    assert!(sends_request(&client, &mut server, page(60_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn private_results_are_cached_per_principal_and_public_ones_are_shared() {
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

        assert!(sends_request(&one, &mut one_server, page(60_000, scope)).await);
        let is_requested = sends_request(&other, &mut other_server, page(0, scope)).await;

        assert_eq!(is_requested, !is_shared, "{scope} for {principals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn private_results_without_a_principal_are_not_shared_between_clients() {
    let cache = Arc::new(MemoryCache::default());
    let of_one_server = |it: ClientBuilder| it.cache(cache.clone()).server_identity("one");
    let (one, mut one_server) = modern_with(of_one_server).await;
    let (other, mut other_server) = modern_with(of_one_server).await;

    assert!(sends_request(&one, &mut one_server, page(60_000, "private")).await);

    assert!(sends_request(&other, &mut other_server, page(60_000, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn results_are_not_shared_between_servers() {
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

            assert!(sends_request(&one, &mut one_server, page(60_000, scope)).await);

            let is_requested = sends_request(&other, &mut other_server, page(60_000, scope)).await;
            assert!(is_requested, "{scope} results of {names:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_at_one_server_does_not_evict_results_of_another() {
    let cache = Arc::new(MemoryCache::default());
    let of = |name: &'static str| {
        let cache = cache.clone();
        modern_with(move |it| it.cache(cache).server_identity(name))
    };
    let (one, mut one_server) = of("one").await;
    let (other, mut other_server) = of("other").await;
    assert!(sends_request(&one, &mut one_server, page(6_000_000, "public")).await);
    assert!(sends_request(&other, &mut other_server, page(6_000_000, "public")).await);

    one_server.notify("notifications/tools/list_changed", json!({}));
    one_server.expect_nothing().await;

    assert!(sends_request(&one, &mut one_server, page(6_000_000, "public")).await);
    assert!(!sends_request(&other, &mut other_server, page(6_000_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn changing_the_principal_discards_private_results() {
    let (client, mut server) = modern().await;
    assert!(sends_request(&client, &mut server, page(60_000, "private")).await);

    client.set_principal("bob");

    assert!(sends_request(&client, &mut server, page(60_000, "private")).await);
}

#[tokio::test(start_paused = true)]
async fn refresh_replaces_the_cached_result_and_uncached_bypasses_the_cache() {
    let (client, mut server) = modern().await;
    assert!(sends_request(&client, &mut server, page(60_000, "public")).await);
    let listed = async |list: RequestBuilder<List<ListToolsRequest>>,
                        server: &mut ScriptedPeer,
                        name: &str| {
        let listing = tokio::spawn(list.into_future());
        let page = json!({"tools": [tool(name)], "ttlMs": 60_000, "cacheScope": "public"});
        server.expect("tools/list").await.answer(page);
        listing.await.unwrap().unwrap()
    };

    let uncached_list = listed(
        client.list_tools().bypass_cache(),
        &mut server,
        "bypass_cache",
    )
    .await;
    let cached = client.list_tools().await.unwrap();
    let new = listed(client.list_tools().refresh(), &mut server, "new").await;
    let cached_now = client.list_tools().await.unwrap();

    assert_eq!(
        (&*uncached_list[0].name, &*cached[0].name),
        ("bypass_cache", "a")
    );
    assert_eq!((&*new[0].name, &*cached_now[0].name), ("new", "new"));
}

#[tokio::test(start_paused = true)]
async fn results_are_not_cached_in_the_legacy_era() {
    let (client, mut server) = super::legacy(json!({"tools": {}})).await;

    assert!(sends_request(&client, &mut server, page(60_000, "public")).await);

    assert!(sends_request(&client, &mut server, page(60_000, "public")).await);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_retry_with_request_state_is_not_cached() {
    let (wire, mut server) = testing::scripted_peer();
    let connect = Client::from_wire(wire).protocol_version("2026-07-28");
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
async fn the_oldest_results_are_evicted_first() {
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
        .idle_timeout(Duration::from_secs(1));
    assert!(matches!(oldest.await, Err(Error::Timeout { .. })));
}
