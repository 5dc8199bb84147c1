//! One handler, every era.

use std::future::{Future, IntoFuture};
use std::task::Poll;
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{AskError, BoxFuture, Caller, Elicited, Responder};
use bowline::server::{Prompt, Resource};
use bowline::types::{
    CallToolResult, ClientCapabilities, ContentBlock, CreateMessageRequestParams,
    CreateMessageResult, ElicitAction, ElicitRequestFormParams, ElicitRequestParams,
    ElicitRequestUrlParams, ElicitResult, ErrorCode, Role, Root, SamplingMessage, TextContent,
};
use bowline::{Client, Context, Error, RpcError, Server, Tool, wire};
use bowline_core::Outcome;
use bowline_core::era::Request;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{COLUMNS, Carrier, Heard, LEGACY, MODERN, Said, connect, order, replying, server};

#[tokio::test(start_paused = true)]
async fn a_tool_that_asks_in_three_rounds_is_the_same_in_every_era() {
    for column in COLUMNS {
        let heard = Heard::default();
        let client = connect(&server(), replying(&heard), column).await;

        let reply = client.call_tool("order", ()).await.unwrap();

        let order = "re: A drink? and re: A snack? for re: Who?";
        assert_eq!(
            reply.text(),
            format!("{order}: re: {order}, sure?"),
            "{column:?}"
        );
        let sure = format!("{order}, sure?");
        assert_eq!(
            heard.all(),
            ["Who?", "A drink?", "A snack?", &sure],
            "{column:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_asks_anew_each_time_under_the_same_key() {
    let guess = Tool::raw("guess", json!({"type": "object"}), async |_, cx| {
        let mut tries = 0;
        loop {
            tries += 1;
            let guess: Said = cx.elicit("guess", "Which number?").await?;
            if guess.said == "3" {
                return Ok(CallToolResult::text(format!("{tries} tries")));
            }
        }
    });
    let server = Server::new("riddles", "1.0.0").tool(guess);
    for column in COLUMNS {
        let heard = Heard::default();
        let host = Host::new().elicitation(move |form| {
            heard.push(&form.message);
            let nth = heard.all().len().to_string();
            async move { ElicitResult::accept(json!({"said": nth})) }
        });
        let client = connect(&server, host, column).await;

        let reply = client.call_tool("guess", ()).await.unwrap();

        assert_eq!(reply.text(), "3 tries", "{column:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_learns_whether_the_user_declined_or_dismissed() {
    let ask = Tool::raw("ask", json!({"type": "object"}), async |_, cx| {
        let outcome = cx.elicit::<Said>("name", "Who?").outcome().await?;
        Ok(CallToolResult::text(match outcome {
            Elicited::Accept(_) => "accepted",
            Elicited::Decline => "declined",
            Elicited::Cancel => "dismissed",
        }))
    });
    let insist = Tool::raw("insist", json!({"type": "object"}), async |_, cx| {
        let name: Said = cx.elicit("name", "Who?").await?;
        Ok(CallToolResult::text(name.said))
    });
    let server = Server::new("asking", "1.0.0").tool(ask).tool(insist);
    for column in COLUMNS {
        for (action, text, message) in [
            (
                ElicitAction::Decline,
                "declined",
                "the user declined to answer",
            ),
            (
                ElicitAction::Cancel,
                "dismissed",
                "the user dismissed the question",
            ),
        ] {
            let host = Host::new().elicitation(move |_| async move { ElicitResult::new(action) });
            let client = connect(&server, host, column).await;

            let reply = client.call_tool("ask", ()).await.unwrap();
            let error = client.call_tool("insist", ()).await.unwrap_err();

            assert_eq!(reply.text(), text, "{column:?}");
            let said = matches!(&error, Error::Peer(said) if said.message == message);
            assert!(said, "{column:?}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_and_folders_are_asked_in_every_era() {
    let tool = Tool::raw("both", json!({"type": "object"}), async |_, cx| {
        let messages = vec![SamplingMessage::new(Role::User, TextContent::new("Hi"))];
        let params = CreateMessageRequestParams::new(messages, 10);
        let (written, roots) = tokio::try_join!(cx.sample("hi", &params), cx.roots())?;
        Ok(CallToolResult::text(format!(
            "{}, {}",
            written.model, roots.roots[0].uri
        )))
    });
    let server = Server::new("both", "1.0.0").tool(tool);
    for column in COLUMNS.into_iter().chain([("2024-11-05", Carrier::Memory)]) {
        let host = Host::new()
            .sampling(async |_| Ok(CreateMessageResult::new("m-1", TextContent::new("Ho"))))
            .roots(async || vec![Root::new("file:///here")]);
        let client = connect(&server, host, column).await;

        let reply = client.call_tool("both", ()).await.unwrap();

        assert_eq!(reply.text(), "m-1, file:///here", "{column:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn prompts_and_resources_ask_like_tools() {
    let prompt = Prompt::raw("letter", async |_, cx| {
        let to: Said = cx.elicit("to", "To whom?").await?;
        Ok(format!("Write to {}", to.said))
    });
    let resource = Resource::raw("docs://mine", "mine", async |_, cx| {
        let of: Said = cx.elicit("of", "Whose?").await?;
        Ok(format!("Pages of {}", of.said))
    });
    let server = Server::new("desk", "1.0.0")
        .prompt(prompt)
        .resource(resource);
    for column in COLUMNS {
        let client = connect(&server, replying(&Heard::default()), column).await;

        let letter = client
            .raw("prompts/get", json!({"name": "letter"}))
            .await
            .unwrap();
        let pages = client
            .raw("resources/read", json!({"uri": "docs://mine"}))
            .await
            .unwrap();

        assert!(
            letter.json().as_str().contains("Write to re: To whom?"),
            "{column:?}"
        );
        assert!(
            pages.json().as_str().contains("Pages of re: Whose?"),
            "{column:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_is_sent_to_a_url_which_has_an_id_only_where_the_version_wants_one() {
    let tool = Tool::raw("sign_in", json!({"type": "object"}), async |_, cx| {
        cx.elicit_url("sign-in", "Sign in, please.", "https://example.com/sign-in")
            .await?;
        Ok(CallToolResult::text("welcome"))
    });
    let server = Server::new("bank", "1.0.0").tool(tool);
    for column in COLUMNS {
        let heard = Heard::default();
        let asked = heard.clone();
        let host = Host::new().elicitation_url(move |params: ElicitRequestUrlParams| {
            asked.push(&format!(
                "{} {}",
                params.url,
                params.elicitation_id.is_some()
            ));
            async { ElicitResult::new(ElicitAction::Accept) }
        });
        let client = connect(&server, host, column).await;

        let outcome = client.call_tool("sign_in", ()).await;

        match column.0 {
            "2025-06-18" => {
                let message = outcome.unwrap_err().to_string();
                assert!(
                    message.contains("no way to ask `elicitation/create by URL`"),
                    "{message}"
                );
            }
            version => {
                assert_eq!(outcome.unwrap().text(), "welcome", "{column:?}");
                let has_id = version != MODERN;
                assert_eq!(
                    heard.all(),
                    [format!("https://example.com/sign-in {has_id}")]
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_client_cannot_answer_is_not_asked() {
    for column in COLUMNS {
        let client = connect(&server(), Host::new(), column).await;

        let error = client.call_tool("order", ()).await.unwrap_err();

        let Error::Peer(error) = error else {
            panic!("{column:?}: {error}");
        };
        let message = r#"this request needs the client capability {"elicitation":{}}"#;
        assert_eq!(error.message, message, "{column:?}");
        if column.0 == MODERN {
            assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
            let data: Value = error.data.unwrap().decode().unwrap();
            assert_eq!(data, json!({"requiredCapabilities": {"elicitation": {}}}));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_for_want_of_a_capability_alone_is_told_to_the_client_not_to_the_model() {
    let failing = |name: &str, suffix: &'static str| {
        Tool::raw(
            name,
            json!({"type": "object"}),
            move |_, cx: Context| async move {
                let asked = cx.elicit::<Said>("name", "Who?").await;
                let text = asked
                    .err()
                    .map(|error| format!("{error}{suffix}"))
                    .unwrap_or_default();
                let mut result = CallToolResult::text(text);
                result.is_error = Some(true);
                Ok(result)
            },
        )
    };
    let server = Server::new("failing", "1.0.0")
        .tool(failing("bare", ""))
        .tool(failing("worded", ", sorry"));
    let client = connect(&server, Host::new(), (MODERN, Carrier::Memory)).await;

    let bare = client.call_tool("bare", ()).await.unwrap_err();
    let worded = client.call_tool("worded", ()).await.unwrap();

    let code = ErrorCode::MISSING_CLIENT_CAPABILITY;
    assert!(
        matches!(&bare, Error::Peer(said) if said.code == code),
        "{bare}"
    );
    assert!(worded.is_error() && worded.text().ends_with(", sorry"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_shows_only_urls_is_shown_no_form() {
    for column in COLUMNS {
        let host = Host::new().elicitation_url(async |_| ElicitResult::new(ElicitAction::Accept));
        let client = connect(&server(), host, column).await;

        let error = client.call_tool("order", ()).await.unwrap_err();

        let message = r#"this request needs the client capability {"elicitation":"#;
        let told = matches!(&error, Error::Peer(said) if said.message.starts_with(message));
        assert!(told, "{column:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_ask_the_user_says_so_at_once_whatever_the_client_declares() {
    for version in ["2025-03-26", "2024-11-05"] {
        for carrier in [Carrier::InProcess, Carrier::Memory] {
            let heard = Heard::default();
            let client = connect(&server(), replying(&heard), (version, carrier)).await;

            let error = client.call_tool("order", ()).await.unwrap_err().to_string();

            let why = "of the protocol has no way to ask `elicitation/create`";
            assert!(
                error.starts_with(&format!("version {version} {why}")),
                "{error}"
            );
            assert_eq!(heard.all(), [""; 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_go_on_without_an_answer_that_nobody_can_give() {
    let tool = Tool::raw("greet", json!({"type": "object"}), async |_, cx| {
        let name = match cx.elicit::<Said>("name", "Who?").await {
            Ok(name) => name.said,
            Err(AskError::Missing(_)) => "stranger".to_owned(),
            Err(error) => return Err(error.into()),
        };
        Ok(CallToolResult::text(name))
    });
    let server = Server::new("greeter", "1.0.0").tool(tool);
    for column in COLUMNS {
        let client = connect(&server, Host::new(), column).await;

        assert_eq!(
            client.call_tool("greet", ()).await.unwrap().text(),
            "stranger"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_wrong_shape_is_refused_by_the_key_of_its_question() {
    for (version, carrier) in COLUMNS {
        let connect = match carrier {
            Carrier::InProcess => Client::to(&server()),
            Carrier::Memory => {
                let (near, far) = wire::memory();
                tokio::spawn(server().serve(far));
                Client::over(near)
            }
        };
        let client = connect.speaking(version).host(Careless).await.unwrap();

        let error = client.call_tool("order", ()).await.unwrap_err();

        let Error::Peer(RpcError { code, message, .. }) = error else {
            panic!("{version} {carrier:?}: {error}");
        };
        assert_eq!(code, ErrorCode::INVALID_PARAMS);
        assert_eq!(
            message,
            "the answer to `name` does not fit: the field `said` must be a string"
        );
    }
}

/// A host that does not look at what it is asked.
struct Careless;

impl Responder for Careless {
    fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
        let answer = json!({"action": "accept", "content": {"said": 7}});
        Box::pin(async { Ok(answer.into()) })
    }

    fn roots_changed(&self, _: &Caller) {}

    fn answers(&self) -> ClientCapabilities {
        serde_json::from_value(json!({"elicitation": {"form": {}}})).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_form_that_a_host_fills_in_wrongly_is_not_sent() {
    for column in COLUMNS {
        let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"said": 7})));
        let client = connect(&server(), host, column).await;

        let error = client.call_tool("order", ()).await.unwrap_err();

        let why = "invalid form content from the host: the field `said` must be a string";
        assert!(error.to_string().contains(why), "{column:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_is_not_sent_to_what_is_no_page_of_the_web() {
    for url in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://bank.example@evil.example/",
    ] {
        let tool = Tool::raw(
            "pay",
            json!({"type": "object"}),
            move |_, cx: Context| async move {
                cx.elicit_url("pay", "Pay there.", url).await?;
                Ok(CallToolResult::text("paid"))
            },
        );
        let server = Server::new("shop", "1.0.0").tool(tool);
        let host = Host::new().elicitation_url(async |asked| panic!("shown {asked:?}"));
        let client = connect(&server, host, (MODERN, Carrier::Memory)).await;

        let error = client.call_tool("pay", ()).await.unwrap_err();

        assert!(error.to_string().contains("URL"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_does_not_show_what_is_no_page_of_the_web() {
    let host = Host::new().elicitation_url(async |asked| panic!("shown {asked:?}"));
    let (wire, mut server) = bowline::testing::scripted();
    let connecting = tokio::spawn(Client::over(wire).speaking(LEGACY).host(host).into_future());
    server.shake_hands(LEGACY, json!({})).await;
    let client = connecting.await.unwrap().unwrap();

    let question = json!({
        "mode": "url", "elicitationId": "1", "message": "Go there.", "url": "javascript:alert(1)",
    });
    let refused = server.ask("q", "elicitation/create", question).await;

    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn what_an_older_version_has_no_words_for_is_not_asked() {
    let several = Tool::raw(
        "several",
        json!({"type": "object"}),
        async |_, cx: Context| {
            let field = json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}});
            let schema = json!({"type": "object", "properties": {"f": field}});
            let form = json!({"message": "?", "requestedSchema": schema});
            let form: ElicitRequestFormParams = serde_json::from_value(form).unwrap();
            cx.elicit_raw("f", ElicitRequestParams::Form(form)).await?;
            Ok(CallToolResult::text("asked"))
        },
    );
    let server = Server::new("s", "1.0.0").tool(several);
    for (version, is_asked) in [(MODERN, true), (LEGACY, true), ("2025-06-18", false)] {
        let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"f": ["a"]})));
        let client = connect(&server, host, (version, Carrier::Memory)).await;

        let asked = client.call_tool("several", ()).await;

        assert_eq!(asked.is_ok(), is_asked, "{version}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_lost_its_race_is_not_asked() {
    let tool = Tool::raw("race", json!({"type": "object"}), async |_, cx| {
        tokio::select! {
            biased;
            _ = cx.elicit::<Said>("slow", "Never mind?") => {}
            () = std::future::ready(()) => {}
        }
        tokio::task::yield_now().await;
        let name: Said = cx.elicit("name", "Who?").await?;
        Ok(CallToolResult::text(name.said))
    });
    let server = Server::new("race", "1.0.0").tool(tool);
    let heard = Heard::default();
    let client = connect(&server, replying(&heard), (MODERN, Carrier::Memory)).await;

    let reply = client.call_tool("race", ()).await.unwrap();

    assert_eq!(reply.text(), "re: Who?");
    assert_eq!(heard.all(), ["Who?"]);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_may_ask_too_and_is_told_when_the_round_is_over() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let tool = Tool::raw("spawn", json!({"type": "object"}), move |_, cx: Context| {
        let sender = sender.clone();
        async move {
            let asking = tokio::spawn(async move {
                let answer = cx.elicit::<Said>("name", "Who?").await;
                sender.send(matches!(&answer, Err(AskError::Over))).unwrap();
                answer
            });
            let name = asking.await.unwrap()?;
            Ok(CallToolResult::text(name.said))
        }
    });
    let server = Server::new("spawn", "1.0.0").tool(tool);
    let client = connect(
        &server,
        replying(&Heard::default()),
        (MODERN, Carrier::Memory),
    )
    .await;

    let reply = client.call_tool("spawn", ()).await.unwrap();

    assert_eq!(reply.text(), "re: Who?");
    let mut ends = [ended.recv().await.unwrap(), ended.recv().await.unwrap()];
    ends.sort_unstable();
    assert_eq!(ends, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_for_a_handler_that_is_done_is_told_so() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let tool = Tool::raw("spawn", json!({"type": "object"}), move |_, cx: Context| {
        let sender = sender.clone();
        async move {
            for key in ["before", "after"] {
                let (cx, sender) = (cx.clone(), sender.clone());
                let mut asking = Box::pin(async move { cx.elicit::<Said>(key, "Who?").await });
                if key == "before" {
                    // Asked within the run that is over a moment later.
                    let _ =
                        std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_ready()))
                            .await;
                }
                tokio::spawn(async move { sender.send((key, asking.await.err())) });
            }
            Ok(CallToolResult::text("done"))
        }
    });
    let server = Server::new("spawn", "1.0.0").tool(tool);
    let heard = Heard::default();
    let client = connect(&server, replying(&heard), (MODERN, Carrier::Memory)).await;

    let reply = client.call_tool("spawn", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    for _ in 0..2 {
        let told = timeout(Duration::from_secs(1), ended.recv()).await;
        let (key, error) = told.unwrap().unwrap();
        assert!(matches!(error, Some(AskError::Over)), "{key}: {error:?}");
    }
    assert_eq!(heard.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_server_serves_both_eras_at_once() {
    let server = Server::new("café", "1.0.0").tool(order());
    let mut clients = Vec::new();
    for version in ["2026-07-28", "2025-11-25"] {
        let (near, far) = wire::memory();
        tokio::spawn(server.clone().serve(far));
        let host = replying(&Heard::default());
        clients.push(
            Client::over(near)
                .speaking(version)
                .host(host)
                .await
                .unwrap(),
        );
    }

    let (modern, legacy) = tokio::join!(
        clients[0].call_tool("order", ()),
        clients[1].call_tool("order", ())
    );

    let (modern, legacy) = (modern.unwrap().tool_result(), legacy.unwrap().tool_result());
    let text = |result: &CallToolResult| match &result.content[0] {
        ContentBlock::Text(text) => text.text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text(&modern.unwrap()), text(&legacy.unwrap()));
}
