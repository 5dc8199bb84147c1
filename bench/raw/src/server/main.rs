//! The ceiling for servers: hyper and serde_json by hand, with no rule of the protocol checked.

mod answers;
mod http;
mod lines;

use bench_fixture::ServerOptions;

fn main() {
    let options = ServerOptions::read();
    let answers = answers::Answers::new(options.tools);
    if options.stdio {
        lines::serve(&answers, options);
    } else {
        bench_fixture::block_on(options.runtime, http::serve(options.port, answers));
    }
}
