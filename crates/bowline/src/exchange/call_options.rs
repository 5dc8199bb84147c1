//! [`CallOptions`], the options of one exchange.

use std::time::Duration;

use bowline_core::mux;
use bowline_types::RequestId;

/// The options of an exchange, whatever its transport.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::exchange::CallOptions;
///
/// let mut options = CallOptions::default();
/// options.timeout = Some(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallOptions {
    /// The request id; by default one is generated.
    ///
    /// An id is free again once its exchange has ended. Do not reuse that of an abandoned one: a late response to it
    /// would answer the new request.
    pub id: Option<RequestId>,
    /// The maximum time without progress.
    pub idle_timeout: Option<Duration>,
    /// The maximum time in total.
    pub timeout: Option<Duration>,
    /// Whether dropping the exchange, or a timeout, cancels the request. [`Exchange::cancel`](super::Exchange::cancel)
    /// always does.
    pub cancel_on_drop: bool,
    /// For a server-to-client request in process: the request that it belongs to.
    pub(crate) within: Option<RequestId>,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            id: None,
            idle_timeout: None,
            timeout: None,
            cancel_on_drop: true,
            within: None,
        }
    }
}

impl From<CallOptions> for mux::CallOptions {
    fn from(options: CallOptions) -> Self {
        Self {
            id: options.id,
            idle_timeout: options.idle_timeout,
            timeout: options.timeout,
            cancel_on_abandon: options.cancel_on_drop,
            ..Self::default()
        }
    }
}
