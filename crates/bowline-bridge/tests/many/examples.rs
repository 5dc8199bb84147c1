//! The configuration files in `examples/`.

use std::path::Path;

use bowline_bridge::BridgeConfig;

fn example(name: &str) -> BridgeConfig {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name);
    BridgeConfig::from_file(path).unwrap()
}

#[test]
fn a_desktop_configuration_has_two_commands() {
    let config = example("desktop.json");

    let servers: Vec<_> = config.upstreams().map(|it| it.name()).collect();
    assert_eq!(servers, ["files", "time"]);
    assert_eq!(config.names().prefix_of("files"), Some("fs__"));
    assert!(config.settings().http.is_some());
}

#[test]
fn a_gateway_configuration_has_rules_and_pins() {
    let config = example("gateway.json");

    assert!(config.settings().auth.is_some());
    let search = config.get("search").unwrap();
    assert!(search.settings().access.depend_on_principal());
    let git = config.get("git").unwrap();
    assert!(
        git.settings()
            .pin
            .as_ref()
            .unwrap()
            .file
            .ends_with("examples/pins.json")
    );
    let expanded = search.expanded_with(|_| Some("secret".to_owned())).unwrap();
    assert_eq!(
        expanded.server().headers().next(),
        Some(("X-Api-Key", "secret"))
    );
}
