//! Draws a [`Screen`] as SVG, in the colours of a light or a dark theme, whichever the reader prefers.

use std::fmt::Write as _;

use super::Size;
use super::screen::{Colour, Run, Screen, Style};

/// Returns an SVG image of the screen. `title` is read to those who cannot see it.
pub(super) fn draw(screen: &Screen, size: Size, title: &str) -> String {
    let rows = screen.rows.iter().rposition(|row| !row.is_empty());
    let rows = rows.map_or(1, |last| last + 1);
    let width = size.columns as f64 * CELL_WIDTH + 2.0 * MARGIN;
    let height = rows as f64 * CELL_HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" role=\"img\" viewBox=\"0 0 {width} {height}\" width=\"{width}\">\n\
         <title>{}</title>\n<style>{}</style>\n\
         <rect class=\"screen\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n",
        escape(title),
        style_sheet(),
    );
    for (index, row) in screen.rows.iter().take(rows).enumerate() {
        for run in row {
            draw_run(&mut svg, run, index);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_run(svg: &mut String, run: &Run, row: usize) {
    let (foreground, background) = colours(run.style);
    let columns = run.text.chars().count() as f64;
    let x = MARGIN + run.column as f64 * CELL_WIDTH;
    let y = MARGIN + row as f64 * CELL_HEIGHT;
    let width = columns * CELL_WIDTH;
    if let Some(background) = background {
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{CELL_HEIGHT}\" {background}/>"
        );
    }
    if run.text.trim().is_empty() {
        return;
    }
    // The length keeps columns aligned, whatever the font.
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{}\" textLength=\"{width}\" {foreground}{}>{}</text>",
        y + BASELINE,
        decorations(run.style),
        escape(&run.text)
    );
}

/// Returns the attributes for the text, and for what is behind it.
fn colours(style: Style) -> (String, Option<String>) {
    let (front, behind) = match style.is_reversed {
        true => (style.background, style.foreground),
        false => (style.foreground, style.background),
    };
    let front_default = if style.is_reversed { "b" } else { "f" };
    let attribute = |colour, default: &str| match colour {
        Colour::Default => format!("class=\"{default}\""),
        Colour::Named(number) => format!("class=\"c{number}\""),
        Colour::Rgb(red, green, blue) => format!("fill=\"rgb({red},{green},{blue})\""),
    };
    let behind = match behind {
        Colour::Default if !style.is_reversed => None,
        colour => Some(attribute(colour, "f")),
    };
    (attribute(front, front_default), behind)
}

fn decorations(style: Style) -> String {
    let all = [
        (style.is_bold, " font-weight=\"bold\""),
        (style.is_dim, " opacity=\"0.65\""),
        (style.is_italic, " font-style=\"italic\""),
        (style.is_underlined, " text-decoration=\"underline\""),
    ];
    let present = all.into_iter().filter(|(is_present, _)| *is_present);
    present.map(|(_, attribute)| attribute).collect()
}

fn style_sheet() -> String {
    let theme = |(text, screen, colours): &Theme| {
        let mut rules = format!(".screen,.b{{fill:{screen}}}.f{{fill:{text}}}");
        for (number, colour) in colours.iter().enumerate() {
            let _ = write!(rules, ".c{number}{{fill:{colour}}}");
        }
        rules
    };
    // Not `font`, which would win over the attribute of bold text. Spaces are kept by the attribute of the root, for
    // programs that do not know the property.
    format!(
        "text{{font-size:{FONT_SIZE}px;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}}{}\
         @media(prefers-color-scheme:dark){{{}}}",
        theme(&LIGHT),
        theme(&DARK)
    )
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// The colour of text, of the screen, and the sixteen that programs choose from.
type Theme = (&'static str, &'static str, [&'static str; 16]);

const LIGHT: Theme = (
    "#24292f",
    "#f6f8fa",
    [
        "#24292f", "#b3202a", "#116329", "#7d4e00", "#0550ae", "#8250df", "#1b7c83", "#6e7781",
        "#57606a", "#cf222e", "#1a7f37", "#9a6700", "#0969da", "#a475f9", "#3192aa", "#24292f",
    ],
);
const DARK: Theme = (
    "#d1d7e0",
    "#151b23",
    [
        "#656c76", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
        "#8b949e", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
    ],
);

const FONT_SIZE: f64 = 13.0;
const CELL_WIDTH: f64 = 7.8;
const CELL_HEIGHT: f64 = 17.0;
const BASELINE: f64 = 13.0;
const MARGIN: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        columns: 80,
        rows: 24,
    };

    #[test]
    fn text_is_escaped_and_coloured() {
        let screen = Screen::parse("\u{1b}[31ma<b>&\u{1b}[0m");

        let svg = draw(&screen, SIZE, "a \"title\"");

        assert!(svg.contains("class=\"c1\">a&lt;b&gt;&amp;</text>"), "{svg}");
        assert!(svg.contains("<title>a &quot;title&quot;</title>"), "{svg}");
    }

    #[test]
    fn bold_text_and_runs_of_spaces_are_kept() {
        let svg = draw(&Screen::parse("\u{1b}[1ma   b"), SIZE, "");

        assert!(svg.contains(" font-weight=\"bold\">a   b</text>"), "{svg}");
        assert!(svg.contains("xml:space=\"preserve\""), "{svg}");
        // A shorthand in the style sheet would set the weight of every text.
        assert!(!svg.contains("{font:"), "{svg}");
    }

    #[test]
    fn reversed_text_has_the_colour_of_the_screen_on_that_of_text() {
        let svg = draw(&Screen::parse("\u{1b}[7mx"), SIZE, "");

        assert!(svg.contains("class=\"f\"/>"), "{svg}");
        assert!(svg.contains("class=\"b\">x<"), "{svg}");
    }

    #[test]
    fn empty_rows_at_the_end_are_not_drawn() {
        let short = draw(&Screen::parse("x\n\n\n"), SIZE, "");

        assert!(short.contains(&format!("height=\"{}\"", CELL_HEIGHT + 2.0 * MARGIN)));
    }
}
