//! `raw-server`: the ceiling for servers. hyper and serde_json without an SDK, and no protocol rule is checked.

mod http;
mod responder;
mod stdio;

use bench_fixture::ServerOptions;

fn main() {
    let options = ServerOptions::read();
    let responder = responder::RawResponder::new(options.tools);
    if options.stdio {
        stdio::serve(&responder, options);
    } else {
        bench_fixture::block_on(options.runtime, http::serve(options.port, responder));
    }
}
