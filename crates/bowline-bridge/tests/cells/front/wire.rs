//! What a front client needs of a wire.

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// A wire from the client's end. Sending starts at once; what arrives is in [`Self::incoming`].
pub(crate) trait FrontWire {
    /// Sends a request.
    fn request(&mut self, message: Value);

    /// Sends a notification or a response. The receiver gets the verdict of the wire.
    fn post(&mut self, message: Value) -> Delivery;

    /// Opens the stream of messages that belong to no request, where that is not part of the wire already.
    fn open_stream(&mut self) -> Delivery;

    /// Closes the response of a request, where the wire has one for each request.
    fn close_response(&mut self, id: &Value);

    fn incoming(&mut self) -> &mut UnboundedReceiver<Incoming>;
}

/// Resolves when a message was taken by the other end.
pub(crate) type Delivery = oneshot::Receiver<Result<(), String>>;

/// Something that arrived at the client.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message {
        /// The id of the request on whose response it came; `None` on a stream that all share.
        within: Option<Value>,
        message: Value,
    },
    /// The response of this request has ended.
    Ended(Value),
    /// The wire, or the response to one request, failed.
    Failed(String),
}

/// A delivery that needs no waiting.
pub(crate) fn delivered() -> Delivery {
    let (sender, receiver) = oneshot::channel();
    let _ = sender.send(Ok(()));
    receiver
}
