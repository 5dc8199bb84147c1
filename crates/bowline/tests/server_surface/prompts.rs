//! Prompts, and the completion of arguments.

use bowline::types::{
    CompleteArgument, CompleteRequestParams, Completion, ListPromptsRequest,
    PaginatedRequestParams, PromptReference, ResourceTemplateReference, Role,
};
use bowline::{ErrorCode, Prompt};
use serde_json::{Value, json};

use crate::support::{CLIENT_TRANSPORTS, ClientTransport, complete, peer_error, prompt, reviewer};

#[tokio::test(start_paused = true)]
async fn prompts_are_listed_and_rendered() {
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&reviewer()).await;

        let params = PaginatedRequestParams::default();
        let listed = client.request::<ListPromptsRequest>(&params).await.unwrap();
        let review = prompt(&client, "review", json!({"code": "x = 1"}))
            .await
            .unwrap();
        let hello = prompt(&client, "hello", Value::Null).await.unwrap();

        assert_eq!(listed.prompts[0].name, "hello");
        let arguments = listed.prompts[1].arguments.as_ref().unwrap();
        let required: Vec<_> = arguments.iter().map(|argument| argument.required).collect();
        assert_eq!(required, [Some(true), Some(false)]);
        assert_eq!(review.description.as_deref(), Some("Reviews code."));
        let messages = serde_json::to_value(&review.messages).unwrap();
        let expected = json!([
            {"role": "user", "content": {"type": "text", "text": "Review kindly."}},
            {"role": "assistant", "content": {"type": "text", "text": "x = 1"}},
        ]);
        assert_eq!(messages, expected);
        assert_eq!(hello.messages[0].role, Role::User);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_with_missing_or_invalid_arguments_is_refused_as_invalid_params() {
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&reviewer()).await;

        let unknown = prompt(&client, "unknown", json!({})).await.unwrap_err();
        let missing = prompt(&client, "review", json!({"style": "x"}))
            .await
            .unwrap_err();
        let number = json!({"name": "review", "arguments": {"code": 1}});
        let number = client.request_raw("prompts/get", number).await.unwrap_err();

        for error in [unknown, missing, number] {
            assert_eq!(
                peer_error(error).code,
                ErrorCode::INVALID_PARAMS,
                "{transport:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_are_completed_from_their_value_and_their_context() {
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&reviewer()).await;
        let (review, typed) = (
            PromptReference::new("review"),
            CompleteArgument::new("style", "k"),
        );
        let mut of_prompt = CompleteRequestParams::new(review.clone(), typed);
        let decided = json!({"arguments": {"code": "knuth"}});
        of_prompt.context = Some(serde_json::from_value(decided).unwrap());
        let template = ResourceTemplateReference::new("docs://{book}/{page}");
        let of_template =
            CompleteRequestParams::new(template.clone(), CompleteArgument::new("page", ""));
        let of_silent = CompleteRequestParams::new(review, CompleteArgument::new("code", ""));

        let styles = complete(&client, of_prompt).await.unwrap();
        let pages = complete(&client, of_template).await.unwrap();
        let nothing = complete(&client, of_silent).await.unwrap();

        let mut values = vec!["Kindly".into(), "kurtly".into()];
        // `context` exists since 2025-06-18.
        if transport != ClientTransport::Wire("2024-11-05") {
            values.push("knuth".into());
        }
        assert_eq!(styles, Completion::new(values), "{transport:?}");
        assert_eq!(pages.values.len(), 100);
        assert_eq!((pages.total, pages.has_more), (Some(250), Some(true)));
        assert!(nothing.values.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn completing_an_unknown_reference_or_argument_is_refused() {
    let unnamed = Prompt::raw("", async |_, _| Ok("text")).required("style", "of the text");
    let server = reviewer().prompt(unnamed);
    for transport in CLIENT_TRANSPORTS {
        let client = transport.connect(&server).await;
        let (known, argument) = (
            PromptReference::new("review"),
            CompleteArgument::new("style", ""),
        );
        let template = ResourceTemplateReference::new("docs://{book}/{page}");
        let invalid = [
            CompleteRequestParams::new(PromptReference::new("unknown"), argument.clone()),
            CompleteRequestParams::new(ResourceTemplateReference::new("docs://x"), argument),
            CompleteRequestParams::new(known, CompleteArgument::new("colour", "")),
            CompleteRequestParams::new(template, CompleteArgument::new("colour", "")),
        ];

        for params in invalid {
            let error = peer_error(complete(&client, params).await.unwrap_err());

            assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{transport:?}");
        }
        let unknown_type =
            json!({"ref": {"type": "ref/other"}, "argument": {"name": "style", "value": ""}});
        let refused = client
            .request_raw("completion/complete", unknown_type)
            .await;
        let error = peer_error(refused.unwrap_err());
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{transport:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn completing_a_removed_prompt_is_refused() {
    let server = reviewer();
    let client = ClientTransport::Wire("2026-07-28").connect(&server).await;
    let style = CompleteArgument::new("style", "");
    let params = CompleteRequestParams::new(PromptReference::new("review"), style);

    let before = complete(&client, params.clone()).await;
    server.prompts().remove("review");
    let after = complete(&client, params).await;

    assert!(before.is_ok());
    assert_eq!(
        peer_error(after.unwrap_err()).code,
        ErrorCode::INVALID_PARAMS
    );
}
