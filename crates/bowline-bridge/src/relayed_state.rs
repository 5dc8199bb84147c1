//! [`RelayedStates`]: the `requestState` of an upstream, sealed for the client that gets it.

use std::time::Duration;

use bowline::exchange::{Outcome, Principal, Request, request_digest};
use bowline::seal::{Binding, Purpose};
use bowline::{Json, RpcError};
use bowline_core::json::Object;

use crate::state_keys::StateKeys;

/// Seals the states of upstreams. An upstream knows the bridge, not its clients, so that its state alone would let one
/// client continue the request of another.
#[derive(Clone, Debug)]
pub(crate) struct RelayedStates(StateKeys);

impl RelayedStates {
    pub(crate) fn new(keys: StateKeys) -> Self {
        Self(keys)
    }

    /// Returns whether a state is one of an upstream, and not that of a parked call.
    pub(crate) fn is_relayed(state: &str) -> bool {
        state.starts_with(PREFIX)
    }

    /// Replaces the state in an `input_required` result.
    pub(crate) fn seal(
        &self,
        upstream: &str,
        request: &Request,
        principal: &Principal,
        result: Json,
    ) -> Outcome {
        let Ok(mut object) = Object::read(&result) else {
            return Ok(result);
        };
        let Some(state) = object.member("requestState").cloned() else {
            return Ok(result);
        };
        let bound = bound(upstream, request, principal);
        let sealed =
            self.0
                .sealer()
                .seal(Purpose::RequestState, &bound, state.as_bytes(), LIFETIME);
        let sealed = sealed.map_err(|error| RpcError::internal(error.to_string()))?;
        let sealed = serde_json::Value::from(format!("{PREFIX}{sealed}"));
        object.set("requestState", Json::from(sealed));
        Ok(object.to_json())
    }

    /// Returns the params of a retry with the state of the upstream.
    ///
    /// # Errors
    ///
    /// -32602 if the state was sealed for another upstream, request or principal, or has expired.
    pub(crate) fn open(
        &self,
        upstream: &str,
        request: &Request,
        principal: &Principal,
        state: &str,
    ) -> Result<Json, RpcError> {
        let invalid = |why: &dyn std::fmt::Display| {
            RpcError::invalid_params(format!("invalid request state: {why}"))
        };
        let bound = bound(upstream, request, principal);
        let sealed = state.strip_prefix(PREFIX).unwrap_or(state);
        let opened = self.0.sealer().open(Purpose::RequestState, &bound, sealed);
        let opened = opened.map_err(|error| invalid(&error))?;
        let state = Json::parse(opened).map_err(|error| invalid(&error))?;
        let params = Object::read(&request.params);
        let mut params =
            params.map_err(|_| RpcError::invalid_params("params must be an object"))?;
        params.set("requestState", state);
        Ok(params.to_json())
    }
}

fn bound(upstream: &str, request: &Request, principal: &Principal) -> Binding {
    let digest = request_digest(&request.method, Some(&request.params));
    let binding = Binding::new().principal(principal);
    binding.bytes(digest.as_bytes()).bytes(upstream)
}

/// Precedes a relayed state. Other sealed texts have no dot.
const PREFIX: &str = "r.";
/// How long a state can be used, if the upstream itself does not limit it.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline::exchange::{Caller, Dialect};
    use bowline::seal::Sealer;
    use serde_json::json;

    use super::*;

    fn request(name: &str) -> Request {
        let caller = Arc::new(Caller::new(Dialect::LATEST));
        Request::new("tools/call", Json::from(json!({"name": name})), caller)
    }

    #[test]
    fn a_state_opens_only_for_its_client_request_and_upstream() {
        let states = RelayedStates::new(StateKeys::new(Sealer::random()));
        let (ada, eve) = (Principal::named("ada"), Principal::named("eve"));
        let result =
            Json::from(json!({"resultType": "input_required", "requestState": "upstream\"s"}));

        let sealed = states.seal("files", &request("a"), &ada, result).unwrap();
        let sealed: serde_json::Value = sealed.decode().unwrap();
        let state = sealed["requestState"].as_str().unwrap();
        let opened = states.open("files", &request("a"), &ada, state).unwrap();

        assert!(RelayedStates::is_relayed(state) && !state.contains("upstream"));
        let opened: serde_json::Value = opened.decode().unwrap();
        assert_eq!(opened, json!({"name": "a", "requestState": "upstream\"s"}));
        for refused in [
            states.open("files", &request("a"), &eve, state),
            states.open("files", &request("b"), &ada, state),
            states.open("search", &request("a"), &ada, state),
        ] {
            assert_eq!(
                refused.unwrap_err().code,
                bowline::ErrorCode::INVALID_PARAMS
            );
        }
    }
}
