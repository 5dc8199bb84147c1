//! The same handlers in every era.

use std::future::{Future, IntoFuture};
use std::task::Poll;
use std::time::Duration;

use bowline::client::Host;
use bowline::exchange::{ElicitationOutcome, InputError};
use bowline::server::{Prompt, RequiredCapability, Resource};
use bowline::testing::matrix;
use bowline::types::{
    CallToolResult, ClientCapabilities, ContentBlock, CreateMessageRequestParams,
    CreateMessageResult, ElicitAction, ElicitRequestFormParams, ElicitRequestParams,
    ElicitRequestUrlParams, ElicitResult, ErrorCode, Role, Root, SamplingMessage, TextContent,
};
use bowline::{Client, Context, Error, RpcError, Server, Tool, wire};
use bowline_core::Outcome;
use bowline_core::era::{ElicitationModes, Request};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    CONFIGURATIONS, HostLog, LEGACY, MODERN, TextForm, TransportKind, connect, order,
    replying_host, server,
};

#[tokio::test(start_paused = true)]
async fn a_tool_that_elicits_in_three_rounds_works_in_every_era() {
    for config in CONFIGURATIONS {
        let host_log = HostLog::default();
        let client = connect(&server(), replying_host(&host_log), config).await;

        let reply = client.call_tool("order", ()).await.unwrap();

        let order = "re: A drink? and re: A snack? for re: Who?";
        assert_eq!(
            reply.text(),
            format!("{order}: re: {order}, sure?"),
            "{config:?}"
        );
        let sure = format!("{order}, sure?");
        assert_eq!(
            host_log.all(),
            ["Who?", "A drink?", "A snack?", &sure],
            "{config:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_in_a_loop_elicits_again_in_each_iteration() {
    let guess = Tool::raw("guess", json!({"type": "object"}), async |_, cx| {
        let mut tries = 0;
        loop {
            tries += 1;
            let guess: TextForm = cx.elicit("guess", "Which number?").await?;
            if guess.text == "3" {
                return Ok(CallToolResult::text(format!("{tries} tries")));
            }
        }
    });
    let server = Server::new("riddles", "1.0.0").tool(guess);
    for config in CONFIGURATIONS {
        let host_log = HostLog::default();
        let host = Host::new().elicitation(move |form| {
            host_log.push(&form.message);
            let nth = host_log.all().len().to_string();
            async move { ElicitResult::accept(json!({"text": nth})) }
        });
        let client = connect(&server, host, config).await;

        let reply = client.call_tool("guess", ()).await.unwrap();

        assert_eq!(reply.text(), "3 tries", "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_distinguishes_decline_from_cancel() {
    let ask = Tool::raw("ask", json!({"type": "object"}), async |_, cx| {
        let outcome = cx.elicit::<TextForm>("name", "Who?").outcome().await?;
        Ok(CallToolResult::text(match outcome {
            ElicitationOutcome::Accept(_) => "accepted",
            ElicitationOutcome::Decline => "declined",
            ElicitationOutcome::Cancel => "dismissed",
        }))
    });
    let insist = Tool::raw("insist", json!({"type": "object"}), async |_, cx| {
        let name: TextForm = cx.elicit("name", "Who?").await?;
        Ok(CallToolResult::text(name.text))
    });
    let server = Server::new("asking", "1.0.0").tool(ask).tool(insist);
    for config in CONFIGURATIONS {
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
            let client = connect(&server, host, config).await;

            let reply = client.call_tool("ask", ()).await.unwrap();
            let failed = client.call_tool("insist", ()).await.unwrap();

            assert_eq!(reply.text(), text, "{config:?}");
            assert!(failed.is_error(), "{config:?}");
            assert_eq!(failed.text(), message, "{config:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sampling_and_roots_work_in_every_era() {
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
    for config in CONFIGURATIONS
        .into_iter()
        .chain([("2024-11-05", TransportKind::Memory)])
    {
        let host = Host::new()
            .sampling(async |_| Ok(CreateMessageResult::new("m-1", TextContent::new("Ho"))))
            .roots(async || vec![Root::new("file:///here")]);
        let client = connect(&server, host, config).await;

        let reply = client.call_tool("both", ()).await.unwrap();

        assert_eq!(reply.text(), "m-1, file:///here", "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn roots_are_requested_once_per_call() {
    let tool = Tool::raw("roots", json!({"type": "object"}), async |_, cx| {
        // A dropped request does not keep the others from the answer.
        drop(cx.roots());
        let (one, other) = tokio::try_join!(cx.roots(), cx.roots())?;
        let third = cx.roots().await?;
        assert_eq!((&one, &one), (&other, &third));
        Ok(CallToolResult::text(one.roots[0].uri.clone()))
    });
    let server = Server::new("roots", "1.0.0").tool(tool);
    for config in CONFIGURATIONS {
        let host_log = HostLog::default();
        let asked = host_log.clone();
        let host = Host::new().roots(move || {
            asked.push("roots");
            async { vec![Root::new("file:///here")] }
        });
        let client = connect(&server, host, config).await;

        for calls in 1..=2 {
            let reply = client.call_tool("roots", ()).await.unwrap();

            assert_eq!(reply.text(), "file:///here", "{config:?}");
            assert_eq!(host_log.all().len(), calls, "{config:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn prompts_and_resources_elicit_like_tools() {
    let prompt = Prompt::raw("letter", async |_, cx| {
        let to: TextForm = cx.elicit("to", "To whom?").await?;
        Ok(format!("Write to {}", to.text))
    });
    let resource = Resource::raw("docs://mine", "mine", async |_, cx| {
        let of: TextForm = cx.elicit("of", "Whose?").await?;
        Ok(format!("Pages of {}", of.text))
    });
    let server = Server::new("desk", "1.0.0")
        .prompt(prompt)
        .resource(resource);
    for config in CONFIGURATIONS {
        let client = connect(&server, replying_host(&HostLog::default()), config).await;

        let letter = client
            .request_raw("prompts/get", json!({"name": "letter"}))
            .await
            .unwrap();
        let pages = client
            .request_raw("resources/read", json!({"uri": "docs://mine"}))
            .await
            .unwrap();

        assert!(
            letter.json().as_str().contains("Write to re: To whom?"),
            "{config:?}"
        );
        assert!(
            pages.json().as_str().contains("Pages of re: Whose?"),
            "{config:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_url_elicitation_has_an_id_only_in_versions_that_require_one() {
    let tool = Tool::raw("sign_in", json!({"type": "object"}), async |_, cx| {
        cx.elicit_url("sign-in", "Sign in, please.", "https://example.com/sign-in")
            .await?;
        Ok(CallToolResult::text("welcome"))
    });
    let server = Server::new("bank", "1.0.0").tool(tool);
    for config in CONFIGURATIONS {
        let host_log = HostLog::default();
        let log = host_log.clone();
        let host = Host::new().elicitation_url(move |params: ElicitRequestUrlParams| {
            log.push(&format!(
                "{} {}",
                params.url,
                params.elicitation_id.is_some()
            ));
            async { ElicitResult::new(ElicitAction::Accept) }
        });
        let client = connect(&server, host, config).await;

        let outcome = client.call_tool("sign_in", ()).await;

        match config.0 {
            "2025-06-18" => {
                let message = outcome.unwrap_err().to_string();
                assert!(
                    message.contains("does not support `elicitation/create in URL mode`"),
                    "{message}"
                );
            }
            version => {
                assert_eq!(outcome.unwrap().text(), "welcome", "{config:?}");
                let has_id = version != MODERN;
                assert_eq!(
                    host_log.all(),
                    [format!("https://example.com/sign-in {has_id}")]
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_elicitation_without_the_client_capability_is_not_sent() {
    for config in CONFIGURATIONS {
        let client = connect(&server(), Host::new(), config).await;

        let error = client.call_tool("order", ()).await.unwrap_err();

        let Error::Rpc(error) = error else {
            panic!("{config:?}: {error}");
        };
        let message =
            "the request requires the client capability `elicitation`, which was not declared";
        assert_eq!(error.message, message, "{config:?}");
        if config.0 == MODERN {
            assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
            let data: Value = error.data.unwrap().decode().unwrap();
            assert_eq!(data, json!({"requiredCapabilities": {"elicitation": {}}}));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bare_capability_error_in_a_tool_result_becomes_a_protocol_error() {
    let failing = |name: &str, suffix: &'static str| {
        Tool::raw(
            name,
            json!({"type": "object"}),
            move |_, cx: Context| async move {
                let asked = cx.elicit::<TextForm>("name", "Who?").await;
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
    let client = connect(&server, Host::new(), (MODERN, TransportKind::Memory)).await;

    let bare = client.call_tool("bare", ()).await.unwrap_err();
    let worded = client.call_tool("worded", ()).await.unwrap();

    let code = ErrorCode::MISSING_CLIENT_CAPABILITY;
    assert!(
        matches!(&bare, Error::Rpc(peer) if peer.code == code),
        "{bare}"
    );
    assert!(worded.is_error() && worded.text().ends_with(", sorry"));
}

#[tokio::test(start_paused = true)]
async fn a_client_without_form_elicitation_gets_no_form() {
    for config in CONFIGURATIONS {
        let host = Host::new().elicitation_url(async |_| ElicitResult::new(ElicitAction::Accept));
        let client = connect(&server(), host, config).await;

        let error = client.call_tool("order", ()).await.unwrap_err();

        let message = "the request requires the client capability `elicitation";
        let is_expected = matches!(&error, Error::Rpc(peer) if peer.message.starts_with(message));
        assert!(is_expected, "{config:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_without_elicitation_fails_whatever_the_client_declares() {
    for version in ["2025-03-26", "2024-11-05"] {
        for transport in [TransportKind::InProcess, TransportKind::Memory] {
            let host_log = HostLog::default();
            let client = connect(&server(), replying_host(&host_log), (version, transport)).await;

            let error = client.call_tool("order", ()).await.unwrap_err().to_string();

            let why = "does not support `elicitation/create`";
            assert!(
                error.starts_with(&format!("protocol version {version} {why}")),
                "{error}"
            );
            assert_eq!(host_log.all(), [""; 0]);
        }
    }
}

/// In process, too, a client does not declare what its version does not have.
#[tokio::test(start_paused = true)]
async fn a_tool_that_requires_elicitation_refuses_callers_alike_over_every_transport() {
    let asking = async || -> String { panic!("the handler runs") };
    let tool = Tool::new("order", asking).requires_capability(RequiredCapability::Elicitation);
    let server = Server::new("shop", "1.0.0").tool(tool);
    for case in matrix() {
        let host = match case.dialect.elicitation {
            ElicitationModes::None => replying_host(&HostLog::default()),
            _ => Host::new(),
        };
        let client = case.serve(&server).connect.host(host).await.unwrap();

        let error = client.call_tool("order", ()).await.unwrap_err();

        let Error::Rpc(error) = error else {
            panic!("{case}: {error}");
        };
        let message =
            "the request requires the client capability `elicitation.form`, which was not declared";
        assert_eq!(error.message, message, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_continue_after_a_missing_capability() {
    let tool = Tool::raw("greet", json!({"type": "object"}), async |_, cx| {
        let name = match cx.elicit::<TextForm>("name", "Who?").await {
            Ok(name) => name.text,
            Err(InputError::Missing(_)) => "stranger".to_owned(),
            Err(error) => return Err(error.into()),
        };
        Ok(CallToolResult::text(name))
    });
    let server = Server::new("greeter", "1.0.0").tool(tool);
    for config in CONFIGURATIONS {
        let client = connect(&server, Host::new(), config).await;

        assert_eq!(
            client.call_tool("greet", ()).await.unwrap().text(),
            "stranger"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_answer_is_refused_with_the_key_of_its_elicitation() {
    let elicits_forms: ClientCapabilities =
        serde_json::from_value(json!({"elicitation": {"form": {}}})).unwrap();
    for (version, transport) in CONFIGURATIONS {
        let connect = match transport {
            TransportKind::InProcess => Client::in_process(&server()),
            TransportKind::Memory => {
                let (near, far) = wire::memory();
                tokio::spawn(server().serve(far));
                Client::from_wire(near)
            }
        };
        let client = connect
            .protocol_version(version)
            .host_responder(accept_with_a_number, elicits_forms.clone())
            .await
            .unwrap();

        let error = client.call_tool("order", ()).await.unwrap_err();

        let Error::Rpc(RpcError { code, message, .. }) = error else {
            panic!("{version} {transport:?}: {error}");
        };
        assert_eq!(code, ErrorCode::INVALID_PARAMS);
        assert_eq!(
            message,
            "invalid answer to `name`: the field `text` must be a string"
        );
    }
}

/// Answers every elicitation with a number, without validation.
async fn accept_with_a_number(_: Request, _: Context) -> Outcome {
    Ok(json!({"action": "accept", "content": {"text": 7}}).into())
}

#[tokio::test(start_paused = true)]
async fn invalid_form_content_from_the_host_is_not_sent() {
    for config in CONFIGURATIONS {
        let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({"text": 7})));
        let client = connect(&server(), host, config).await;

        let error = client.call_tool("order", ()).await.unwrap_err();

        let why = "invalid form content from the host: the field `text` must be a string";
        assert!(error.to_string().contains(why), "{config:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_refuses_to_elicit_an_unsafe_url() {
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
        let client = connect(&server, host, (MODERN, TransportKind::Memory)).await;

        let failed = client.call_tool("pay", ()).await.unwrap();

        assert!(
            failed.is_error() && failed.text().contains("URL"),
            "{failed:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_refuses_an_unsafe_elicitation_url() {
    let host = Host::new().elicitation_url(async |asked| panic!("shown {asked:?}"));
    let (wire, mut server) = bowline::testing::scripted_peer();
    let connecting = tokio::spawn(
        Client::from_wire(wire)
            .protocol_version(LEGACY)
            .host(host)
            .into_future(),
    );
    server.accept_handshake(LEGACY, json!({})).await;
    let client = connecting.await.unwrap().unwrap();

    let question = json!({
        "mode": "url", "elicitationId": "1", "message": "Go there.", "url": "javascript:alert(1)",
    });
    let refused = server.call("q", "elicitation/create", question).await;

    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_form_field_that_the_version_lacks_is_not_elicited() {
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
        let client = connect(&server, host, (version, TransportKind::Memory)).await;

        let asked = client.call_tool("several", ()).await;

        assert_eq!(asked.is_ok(), is_asked, "{version}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_elicitation_is_not_sent() {
    let tool = Tool::raw("race", json!({"type": "object"}), async |_, cx| {
        tokio::select! {
            biased;
            _ = cx.elicit::<TextForm>("slow", "Never mind?") => {}
            () = std::future::ready(()) => {}
        }
        tokio::task::yield_now().await;
        let name: TextForm = cx.elicit("name", "Who?").await?;
        Ok(CallToolResult::text(name.text))
    });
    let server = Server::new("race", "1.0.0").tool(tool);
    let host_log = HostLog::default();
    let client = connect(
        &server,
        replying_host(&host_log),
        (MODERN, TransportKind::Memory),
    )
    .await;

    let reply = client.call_tool("race", ()).await.unwrap();

    assert_eq!(reply.text(), "re: Who?");
    assert_eq!(host_log.all(), ["Who?"]);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_can_elicit_and_gets_an_error_when_its_round_ends() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let tool = Tool::raw("spawn", json!({"type": "object"}), move |_, cx: Context| {
        let sender = sender.clone();
        async move {
            let asking = tokio::spawn(async move {
                let answer = cx.elicit::<TextForm>("name", "Who?").await;
                sender
                    .send(matches!(&answer, Err(InputError::RequestEnded)))
                    .unwrap();
                answer
            });
            let name = asking.await.unwrap()?;
            Ok(CallToolResult::text(name.text))
        }
    });
    let server = Server::new("spawn", "1.0.0").tool(tool);
    let client = connect(
        &server,
        replying_host(&HostLog::default()),
        (MODERN, TransportKind::Memory),
    )
    .await;

    let reply = client.call_tool("spawn", ()).await.unwrap();

    assert_eq!(reply.text(), "re: Who?");
    let mut ends = [ended.recv().await.unwrap(), ended.recv().await.unwrap()];
    ends.sort_unstable();
    assert_eq!(ends, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_that_elicits_after_its_handler_gets_an_error() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let tool = Tool::raw("spawn", json!({"type": "object"}), move |_, cx: Context| {
        let sender = sender.clone();
        async move {
            for key in ["before", "after"] {
                let (cx, sender) = (cx.clone(), sender.clone());
                let mut asking = Box::pin(async move { cx.elicit::<TextForm>(key, "Who?").await });
                if key == "before" {
                    // Elicit while the handler still runs.
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
    let host_log = HostLog::default();
    let client = connect(
        &server,
        replying_host(&host_log),
        (MODERN, TransportKind::Memory),
    )
    .await;

    let reply = client.call_tool("spawn", ()).await.unwrap();

    assert_eq!(reply.text(), "done");
    for _ in 0..2 {
        let end = timeout(Duration::from_secs(1), ended.recv()).await;
        let (key, error) = end.unwrap().unwrap();
        assert!(
            matches!(error, Some(InputError::RequestEnded)),
            "{key}: {error:?}"
        );
    }
    assert_eq!(host_log.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_server_serves_both_eras_concurrently() {
    let server = Server::new("café", "1.0.0").tool(order());
    let mut clients = Vec::new();
    for version in ["2026-07-28", "2025-11-25"] {
        let (near, far) = wire::memory();
        tokio::spawn(server.clone().serve(far));
        let host = replying_host(&HostLog::default());
        clients.push(
            Client::from_wire(near)
                .protocol_version(version)
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
