//! Lists: all pages, one page, a stream of items.

use std::time::Duration;

use bowline::testing::ScriptedPeer;
use bowline::{Error, ErrorCode};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{modern, protocol_error, tool};

/// Answers `tools/list` with a page of one tool after 30 s each time, without end.
async fn list_slowly(server: &mut ScriptedPeer) {
    for page in 0.. {
        let id = server.expect("tools/list").await.hold();
        sleep(Duration::from_secs(30)).await;
        let next = page.to_string();
        server.answer(id, json!({"tools": [tool(&next)], "nextCursor": next}));
    }
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_list_share_its_total_timeout() {
    for total in [90, 100].map(Duration::from_secs) {
        let (client, mut server) = modern().await;
        let begun = Instant::now();

        let listed = tokio::select! {
            listed = client.list_tools().timeout(total).into_future() => listed,
            () = list_slowly(&mut server) => unreachable!(),
        };

        assert!(
            matches!(listed, Err(Error::Timeout { after }) if after == total),
            "{listed:?}"
        );
        assert_eq!(begun.elapsed(), total);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_starts_over_continues_its_total_timeout() {
    let (client, mut server) = modern().await;
    let total = Duration::from_secs(100);
    let begun = Instant::now();
    let script = async {
        let id = server.expect("tools/list").await.hold();
        sleep(Duration::from_secs(30)).await;
        server.answer(id, json!({"tools": [], "nextCursor": "a"}));
        let expired = server.expect("tools/list").await;
        expired.answer_error(ErrorCode::INVALID_PARAMS, "expired");
        list_slowly(&mut server).await;
    };

    let listed = tokio::select! {
        listed = client.list_tools().timeout(total).into_future() => listed,
        () = script => unreachable!(),
    };

    assert!(matches!(listed, Err(Error::Timeout { .. })), "{listed:?}");
    assert_eq!(begun.elapsed(), total);
}

#[tokio::test(start_paused = true)]
async fn the_time_between_the_items_of_a_stream_does_not_count_towards_its_timeout() {
    let (client, mut server) = modern().await;
    let total = Duration::from_secs(100);
    let mut tools = client.list_tools().timeout(total).stream();
    for page in 0..3 {
        let script = async {
            let id = server.expect("tools/list").await.hold();
            sleep(Duration::from_secs(30)).await;
            server.answer(
                id,
                json!({"tools": [tool("a")], "nextCursor": page.to_string()}),
            );
        };
        let (item, ()) = tokio::join!(tools.next(), script);
        item.unwrap().unwrap();
        sleep(Duration::from_secs(3600)).await;
    }
    let begun = Instant::now();

    let last = tools.next().await.unwrap();

    assert!(
        matches!(last, Err(Error::Timeout { after }) if after == total),
        "{last:?}"
    );
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn awaiting_a_list_collects_every_page_until_there_is_no_next_cursor() {
    let (client, mut server) = modern().await;

    let listing = client.list_tools().into_future();
    let script = async {
        let first = server.expect("tools/list").await;
        assert_eq!(first.params().get("cursor"), None);
        first.answer(json!({"tools": [tool("a"), tool("b")], "nextCursor": ""}));
        let second = server.expect("tools/list").await;
        assert_eq!(second.params()["cursor"], "", "an empty cursor is a cursor");
        second.answer(json!({"tools": [], "nextCursor": "opaque/ü="}));
        let third = server.expect("tools/list").await;
        assert_eq!(third.params()["cursor"], "opaque/ü=");
        third.answer(json!({"tools": [tool("c")]}));
        server.expect_nothing().await;
    };
    let (tools, ()) = tokio::join!(listing, script);

    let names: Vec<_> = tools.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn each_list_sends_its_own_method() {
    let (client, mut server) = modern().await;

    let lists = async {
        (
            client.list_resources().await.unwrap(),
            client.list_resource_templates().await.unwrap(),
            client.list_prompts().await.unwrap(),
        )
    };
    let script = async {
        let resource = json!({"uri": "file:///a", "name": "a"});
        let resources = json!({"resources": [resource]});
        server.expect("resources/list").await.answer(resources);
        let template = json!({"uriTemplate": "file:///{name}", "name": "t"});
        let templates = json!({"resourceTemplates": [template]});
        server
            .expect("resources/templates/list")
            .await
            .answer(templates);
        let prompts = json!({"prompts": [{"name": "p"}]});
        server.expect("prompts/list").await.answer(prompts);
    };
    let ((resources, templates, prompts), ()) = tokio::join!(lists, script);

    assert_eq!(resources[0].uri, "file:///a");
    assert_eq!(templates[0].uri_template, "file:///{name}");
    assert_eq!(prompts[0].name, "p");
}

#[tokio::test(start_paused = true)]
async fn a_page_is_requested_by_its_cursor_and_returns_the_next_cursor() {
    let (client, mut server) = modern().await;

    let page = client.list_tools().cursor("two").into_future();
    let script = async {
        let request = server.expect("tools/list").await;
        assert_eq!(request.params()["cursor"], "two");
        request.answer(json!({"tools": [tool("b")], "nextCursor": "three"}));
        server.expect_nothing().await;
    };
    let (page, ()) = tokio::join!(page, script);

    assert_eq!(page.unwrap().next_cursor, Some("three".into()));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_cursor_is_a_protocol_error() {
    let (client, mut server) = modern().await;

    let listing = client.list_tools().into_future();
    let script = async {
        for _ in 0..2 {
            let page = json!({"tools": [tool("a")], "nextCursor": "again"});
            server.expect("tools/list").await.answer(page);
        }
        server.expect_nothing().await;
    };
    let (tools, ()) = tokio::join!(listing, script);

    assert!(protocol_error(&tools.unwrap_err()).contains("cursor"));
}

#[tokio::test(start_paused = true)]
async fn an_endless_list_fails_at_the_page_or_item_limit() {
    for by_pages in [true, false] {
        let (client, mut server) = modern().await;

        let list = client.list_tools();
        let list = if by_pages {
            list.max_pages(2)
        } else {
            list.max_items(3)
        };
        let script = async {
            for number in 0..2 {
                let page =
                    json!({"tools": [tool("a"), tool("b")], "nextCursor": number.to_string()});
                server.expect("tools/list").await.answer(page);
            }
            server.expect_nothing().await;
        };
        let (tools, ()) = tokio::join!(list.into_future(), script);

        assert!(protocol_error(&tools.unwrap_err()).contains("exceeds the limit"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_fails_at_the_byte_limit() {
    let (client, mut server) = modern().await;
    let page = |cursor: &str| json!({"tools": [tool(&"a".repeat(500))], "nextCursor": cursor});
    let list = client.list_tools().max_bytes(1_500).into_future();

    let (tools, ()) = tokio::join!(list, async {
        server.expect("tools/list").await.answer(page("1"));
        server.expect("tools/list").await.answer(page("2"));
        server.expect("tools/list").await.answer(page("3"));
        server.expect_nothing().await;
    });

    assert_eq!(
        protocol_error(&tools.unwrap_err()),
        "the list exceeds the limit of 1500 bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_requests_pages_on_demand_and_dropping_it_cancels_the_pending_page() {
    let (client, mut server) = modern().await;
    let mut tools = client.list_tools().stream();

    server.expect_nothing().await;
    let (first, ()) = tokio::join!(tools.next(), async {
        let page = json!({"tools": [tool("a")], "nextCursor": "two"});
        server.expect("tools/list").await.answer(page);
    });
    server.expect_nothing().await;
    let id = tokio::select! {
        id = async { server.expect("tools/list").await.hold() } => id,
        _ = tools.next() => panic!("the second page was not sent"),
    };
    drop(tools);

    assert_eq!(first.unwrap().unwrap().name, "a");
    assert_eq!(server.expect_cancel(&id).await, "caller cancelled");
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_restarts_once_when_its_cursor_is_rejected() {
    let (client, mut server) = modern().await;

    let listing = client.list_tools().into_future();
    let script = async {
        let stale = json!({"tools": [tool("old")], "nextCursor": "x"});
        server.expect("tools/list").await.answer(stale);
        let second = server.expect("tools/list").await;
        second.answer_error(ErrorCode::INVALID_PARAMS, "no such cursor");
        let fresh = server.expect("tools/list").await;
        assert_eq!(fresh.params().get("cursor"), None);
        fresh.answer(json!({"tools": [tool("new")], "nextCursor": "y"}));
        let last = server.expect("tools/list").await;
        last.answer_error(ErrorCode::INVALID_PARAMS, "no such cursor");
        server.expect_nothing().await;
    };
    let (tools, ()) = tokio::join!(listing, script);

    assert!(matches!(tools, Err(Error::Rpc(_))));
}

#[tokio::test(start_paused = true)]
async fn progress_is_reported_for_every_page() {
    let (client, mut server) = modern().await;
    let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();

    let listing = client
        .list_tools()
        .on_progress(move |report| sender.send(report.progress).unwrap())
        .into_future();
    let script = async {
        for (at, next) in [(1, json!("two")), (2, json!(null))] {
            let page = server.expect("tools/list").await;
            let token = page.params()["_meta"]["progressToken"].clone();
            let progress = json!({"progressToken": token, "progress": at});
            let page = page.notify("notifications/progress", progress);
            page.answer(json!({"tools": [], "nextCursor": next}));
        }
    };
    let (tools, ()) = tokio::join!(listing, script);

    tools.unwrap();
    assert_eq!((reports.try_recv(), reports.try_recv()), (Ok(1.0), Ok(2.0)));
}
