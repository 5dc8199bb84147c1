//! A channel that can be closed, where there is no wire to close.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_core::era::Request;
use bowline_core::mux::CallOptions;

use crate::Error;
use crate::exchange::{Channel, Exchange};

/// Lets requests through until it is closed. Those that are under way go on: they are their callers' own.
pub(super) struct Gate {
    channel: Arc<dyn Channel>,
    is_closed: AtomicBool,
}

impl Gate {
    pub(super) fn new(channel: Arc<dyn Channel>) -> Self {
        Self {
            channel,
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

impl Channel for Gate {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if self.is_closed.load(Ordering::Acquire) {
            return Exchange::failed(Error::Closed);
        }
        self.channel.open(request, options)
    }
}
