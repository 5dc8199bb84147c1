//! Refuses `oauth` and `tokenExchange`, without the feature `auth`.

use bowline::client::ServerConfig;
use bowline::{Error, Result};

use crate::Target;
use crate::config::{OAuthSettings, TokenExchangeSettings};

#[derive(Clone, Default)]
pub(super) struct OAuthSetup;

impl OAuthSetup {
    pub(super) fn target(&self, _: ServerConfig, _: &OAuthSettings) -> Result<Target> {
        Err(disabled("oauth"))
    }
}

pub(super) fn exchange(_: ServerConfig, _: &TokenExchangeSettings) -> Result<Target> {
    Err(disabled("tokenExchange"))
}

fn disabled(member: &str) -> Error {
    let what = format!("`bridge.{member}` requires the feature `auth` of `bowline-bridge`");
    Error::Misuse { what }
}
