//! [`Retry`]: a request that carries the state of a parked call, and the client's answers.

use std::collections::BTreeMap;

use bowline::exchange::{Digest, Principal, Request, request_digest};
use bowline::{Json, RpcError};

use super::refusal::Refusal;

/// A request that carries the state of a parked call.
#[derive(Debug)]
pub(crate) struct Retry<'a> {
    pub(super) request: &'a Request,
    pub(super) principal: &'a Principal,
    pub(super) digest: Digest,
    pub(super) state: String,
    pub(super) responses: BTreeMap<String, Json>,
}

impl<'a> Retry<'a> {
    /// Returns the `requestState`.
    pub(crate) fn state(&self) -> &str {
        &self.state
    }

    /// Reads `requestState` and `inputResponses` of a request to `server`. Returns `None` if the request carries no state, so is not a retry.
    ///
    /// # Errors
    ///
    /// -32602 if one of them has the wrong type.
    pub(crate) fn read(
        request: &'a Request,
        principal: &'a Principal,
        server: &str,
    ) -> Result<Option<Self>, RpcError> {
        let invalid = Refusal::InvalidMember;
        let member = |name| {
            let member = request
                .params
                .member(name)
                .map_err(RpcError::invalid_params)?;
            Ok::<_, RpcError>(member.filter(|member| !member.is_null()))
        };
        let Some(state) = member("requestState")? else {
            return Ok(None);
        };
        let state = state.decode();
        let state = state.map_err(|_| invalid("`requestState` must be a string"))?;
        let responses = member("inputResponses")?.unwrap_or_else(Json::empty_object);
        let responses = responses.decode();
        let responses = responses.map_err(|_| invalid("`inputResponses` must be an object"))?;
        Ok(Some(Self {
            request,
            principal,
            digest: call_digest(server, request),
            state,
            responses,
        }))
    }
}

/// Returns the digest of a call. It contains the server, because two servers may have tools with the same name.
pub(super) fn call_digest(server: &str, request: &Request) -> Digest {
    let method = format!("{} of {server}", request.method);
    request_digest(&method, Some(&request.params))
}
