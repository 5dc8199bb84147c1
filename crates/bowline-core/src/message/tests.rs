//! Tests of decoding and encoding: valid messages, malformed ones, and the error for each.

use super::*;

fn decode(text: &str) -> Result<Message, Malformed> {
    Message::decode(&Bytes::copy_from_slice(text.as_bytes()))
}

fn rejected(text: &str) -> (Option<RequestId>, i64) {
    match decode(text) {
        Err(Malformed::Request { id, error }) => (id, error.code.0),
        other => panic!("{text} gave {other:?}"),
    }
}

#[test]
fn the_computed_length_is_exact() {
    let json = Json::parse(r#"{"a":[1,2.0]}"#).unwrap();
    let request = |id: RequestId, params: Option<&Json>| -> Message {
        RawRequest {
            id,
            method: "tools/list".into(),
            params: params.cloned().map(Params::from),
        }
        .into()
    };
    let response = |id: Option<i64>, outcome: Outcome| -> Message {
        let id = id.map(RequestId::from);
        Response { id, outcome }.into()
    };
    let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "no luck");
    let messages = [
        request(0.into(), None),
        request("é".into(), Some(&json)),
        Notification::new("notifications/x", None).into(),
        Notification::new("notifications/x", Some(json.clone())).into(),
        response(Some(i64::MIN), Ok(json.clone())),
        response(Some(-10), Err(error.clone())),
        response(None, Err(error.with_data(json))),
    ];

    for message in messages {
        assert_eq!(
            message.encoded_len(),
            message.to_frame().len(),
            "{message:?}"
        );
    }
}

#[test]
fn the_variable_length_counts_what_the_sender_decides() {
    let json = || Json::parse("[7,8]").unwrap();
    let request = |id: RequestId, params| -> Message {
        let (method, params) = ("four".into(), Some(Params::from(params)));
        RawRequest { id, method, params }.into()
    };
    let response = |id: RequestId, outcome| -> Message {
        let id = Some(id);
        Response { id, outcome }.into()
    };
    let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "no luck");

    for (message, length) in [
        (request(1_000_000.into(), json()), 4 + 5),
        (request("abc".into(), json()), 3 + 4 + 5),
        (Notification::new("four", Some(json())).into(), 4 + 5),
        (response(1_000_000.into(), Ok(json())), 5),
        (response("abc".into(), Ok(json())), 3 + 5),
        (
            response("abc".into(), Err(error.with_data(json()))),
            3 + 7 + 5,
        ),
    ] {
        assert_eq!(message.variable_len(), length, "{message:?}");
    }
}

#[test]
fn an_encoded_message_decodes_to_the_same_message() {
    let params = Json::parse(r#"{"a":[1,2.0],"_meta":{}}"#).unwrap();
    let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "no \"luck\"\n").with_data(params.clone());
    let messages: [Message; 6] = [
        RawRequest {
            id: 7.into(),
            method: "tools/list".into(),
            params: Some(params.clone().into()),
        }
        .into(),
        RawRequest {
            id: "7".into(),
            method: "ping".into(),
            params: None,
        }
        .into(),
        Notification::new("notifications/x", Some(params.clone())).into(),
        Notification::new("notifications/y", None).into(),
        Response {
            id: Some("a\u{0}\u{1F980}".into()),
            outcome: Ok(params),
        }
        .into(),
        Response {
            id: None,
            outcome: Err(error),
        }
        .into(),
    ];

    for message in messages {
        assert_eq!(Message::decode(&message.to_frame()), Ok(message));
    }
}

#[test]
fn a_frame_is_one_line_whatever_the_params_look_like() {
    let params = Json::parse("{\r\n  \"a\": \"\\n\"\n}").unwrap();

    let frame = Message::from(Notification::new("x", Some(params))).to_frame();

    assert!(!frame.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
    assert!(Message::decode(&frame).is_ok());
}

#[test]
fn params_are_a_slice_of_the_frame() {
    let frame = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"m","params":{"deep":[{}]}}"#);

    let Ok(Message::Notification(Notification {
        params: Some(params),
        ..
    })) = Message::decode(&frame)
    else {
        panic!("a notification with params")
    };

    assert!(frame.as_ptr_range().contains(&params.as_bytes().as_ptr()));
}

#[test]
fn invalid_json_is_a_parse_error_without_an_id() {
    let text = [
        "",
        "{",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping""#,
        "\u{0}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\u{0}\"}",
        "nope",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"} {}"#,
    ];
    for text in text {
        assert_eq!(rejected(text), (None, -32700), "{text:?}");
    }
    let not_utf8 = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}");
    let answer = Message::decode(&not_utf8)
        .unwrap_err()
        .error_response()
        .unwrap();
    assert_eq!(answer.outcome.unwrap_err().code, ErrorCode::PARSE_ERROR);
}

#[test]
fn json_that_is_not_a_request_is_an_invalid_request() {
    let one = Some(RequestId::from(1));
    let table = [
        ("[]", None),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, None),
        ("1", None),
        ("null", None),
        (r#""text""#, None),
        ("{}", None),
        (r#"{"id":1,"method":"ping"}"#, one.clone()),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, one.clone()),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, one.clone()),
        (r#"{"jsonrpc":"2.0","id":1}"#, one.clone()),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, one.clone()),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, one.clone()),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#,
            one.clone(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"bar"}"#,
            one.clone(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#,
            one.clone(),
        ),
        (r#"{"jsonrpc":"2.0","method":1}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, None),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#,
            one.clone(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}"#,
            one,
        ),
    ];
    for (text, id) in table {
        assert_eq!(rejected(text), (id, -32600), "{text}");
    }
}

#[test]
fn a_malformed_response_is_never_answered() {
    let one = Some(RequestId::from(1));
    let table = [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
            one.clone(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":""}}"#,
            one.clone(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"message":"no code"}}"#,
            one.clone(),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, one.clone()),
        (r#"{"id":1,"result":{}}"#, one.clone()),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#, one),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","result":{}}"#, None),
        (
            r#"{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":""}}"#,
            None,
        ),
    ];
    for (text, expected) in table {
        match decode(text).unwrap_err() {
            Malformed::Response { id, .. } => assert_eq!(id, expected, "{text}"),
            other @ Malformed::Request { .. } => panic!("{text} gave {other:?}"),
        }
        assert_eq!(decode(text).unwrap_err().error_response(), None);
    }
}

#[test]
fn an_error_may_come_without_an_id() {
    for id in ["", r#""id":null,"#] {
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32700,"message":"?"}}}}"#);
        assert!(
            matches!(
                decode(&text),
                Ok(Message::Response(Response { id: None, .. }))
            ),
            "{text}"
        );
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"x":{deep}}}}}"#);

    let Ok(Message::Request(request)) = decode(&text) else {
        panic!("a request")
    };

    assert!(
        request
            .params
            .unwrap()
            .decode::<serde_json::Value>()
            .is_err()
    );
}

#[test]
fn unknown_members_are_ignored_and_names_may_be_escaped() {
    let text = r#"{"extra":[{}],"json\u0072pc":"2.0","\u0069d":"x","method":"m\u0021","result":1}"#;

    let Ok(Message::Request(request)) = decode(text) else {
        panic!("a request")
    };

    assert_eq!((request.id, &*request.method), ("x".into(), "m!"));
}

#[test]
fn a_malformed_message_does_not_affect_its_batch() {
    let frame = Bytes::from_static(
        br#" [{"jsonrpc":"2.0","id":1,"method":"m"}, 7, {"jsonrpc":"2.0","method":"n"}]"#,
    );

    let parts = decode_batch(&frame, 3).unwrap();

    assert!(is_batch(&frame));
    assert!(matches!(
        parts[..],
        [
            Ok(Message::Request(_)),
            Err(_),
            Ok(Message::Notification(_))
        ]
    ));
}

#[test]
fn only_a_nonempty_array_is_a_batch() {
    for (text, code) in [
        ("[]", ErrorCode::INVALID_REQUEST),
        ("[ ]", ErrorCode::INVALID_REQUEST),
        ("[1", ErrorCode::PARSE_ERROR),
        ("[1,]", ErrorCode::PARSE_ERROR),
        ("[,1]", ErrorCode::PARSE_ERROR),
        ("[1 2]", ErrorCode::PARSE_ERROR),
        ("[1]]", ErrorCode::PARSE_ERROR),
        ("[1] x", ErrorCode::PARSE_ERROR),
        ("1", ErrorCode::PARSE_ERROR),
        ("", ErrorCode::PARSE_ERROR),
    ] {
        let refused = decode_batch(&Bytes::from_static(text.as_bytes()), 10).unwrap_err();

        let Malformed::Request { id: None, error } = Malformed::from(refused) else {
            panic!("{text}: expected an error to send")
        };
        assert_eq!(error.code, code, "{text}");
    }
    assert_eq!(
        decode_batch(&Bytes::from_static(b" [1 , [2]]\n"), 2)
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_batch_is_counted_before_it_is_decoded() {
    // The text after the first excess message is not JSON, and is not read.
    let long = Bytes::from_static(b"[0,0,0,0 what is this");

    assert_eq!(
        decode_batch(&long, 3).unwrap_err(),
        BatchError::TooLong { max: 3 }
    );
    let told = Malformed::from(BatchError::TooLong { max: 3 })
        .error_response()
        .unwrap();
    let error = told.outcome.unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_REQUEST);
    assert_eq!(
        error.message,
        "batch exceeds the limit of 3 messages (`batch_messages`)"
    );
}

#[test]
fn the_buffers_of_a_vectored_response_are_its_frame() {
    let result = Json::from_static(r#"{"content":[]}"#);
    for id in [RequestId::from(7), RequestId::from("a\"b")] {
        let whole = Message::from(Response {
            id: Some(id.clone()),
            outcome: Ok(result.clone()),
        });

        let buffers = Response::encode_vectored(&id, result.clone());

        assert_eq!(buffers.concat(), whole.to_frame());
        assert_eq!(buffers[1].as_ptr(), result.as_bytes().as_ptr());
    }
}

#[test]
fn the_index_built_while_decoding_equals_the_one_built_later() {
    for params in [
        r#"{}"#,
        r#"{ "name" : "a" , "arguments":{"name":1}, "_meta" :null}"#,
        r#"{"n\u0061me": "a", "uri": [{"uri": 1}], "é": "é", "arguments": "é"}"#,
        r#"{"name": 1, "arguments": {}, "name": 2}"#,
    ] {
        let frame = format!(r#" {{"params" : {params} ,"jsonrpc":"2.0","id":1,"method":"a"}} "#);

        let Ok(Message::Request(request)) = Message::decode(&frame.into()) else {
            panic!("{params} was refused");
        };

        let (found, later) = (
            request.params.unwrap(),
            Params::from(Json::from_static(params)),
        );
        for name in ["name", "arguments", "_meta", "uri", "é", "other"] {
            assert_eq!(found.member(name), later.member(name), "{name} in {params}");
        }
    }
}

#[test]
fn a_part_is_copied_if_its_frame_is_more_than_twice_as_long_and_not_small() {
    for part in [0, 1, 100, 10_000] {
        let limit = SMALL_FRAME + part + part;

        assert!(!is_worth_copying(part, limit), "{part} of {limit}");
        assert!(is_worth_copying(part, limit + 1), "{part} of {limit} and 1");
    }
}

#[test]
fn a_small_slice_does_not_keep_a_long_frame_alive() {
    let pad = "x".repeat(100_000);
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}"#;
    let padded = Bytes::from(format!(r#"{request},"pad":"{pad}"}}"#));
    let batch = Bytes::from(format!(r#"[{request}}},"{pad}"]"#));
    let is_within =
        |frame: &Bytes, params: &Params| frame.as_ptr_range().contains(&params.as_bytes().as_ptr());

    let of_padded = Message::decode(&padded).unwrap();
    let of_batch = decode_batch(&batch, 2).unwrap().swap_remove(0).unwrap();

    for (frame, message) in [(padded, of_padded), (batch, of_batch)] {
        let Message::Request(request) = message else {
            panic!("a request")
        };
        let params = request.params.unwrap();
        assert_eq!(params.as_str(), r#"{"a":1}"#);
        assert!(!is_within(&frame, &params));
    }
}
