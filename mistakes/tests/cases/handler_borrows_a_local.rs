//! A closure that borrows.
//! Says: use the `move` keyword

use bowline::prelude::*;

fn main() {
    let name = String::from("Ada");
    let _ = Tool::new("name", || {
        let name = &name;
        std::future::ready(name.clone())
    });
}
