//! [`Screen`]: the text of a terminal with its colours, parsed from escape sequences.

/// The rows of a terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) rows: Vec<Vec<Run>>,
}

/// Characters in one style, from a column on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) column: usize,
    pub(super) text: String,
    pub(super) style: Style,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) foreground: Colour,
    pub(super) background: Colour,
    pub(super) is_bold: bool,
    pub(super) is_dim: bool,
    pub(super) is_italic: bool,
    pub(super) is_underlined: bool,
    pub(super) is_reversed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Colour {
    #[default]
    Default,
    /// One of the sixteen colours of the theme.
    Named(u8),
    Rgb(u8, u8, u8),
}

impl Screen {
    /// Parses what `tmux capture-pane -e -p` prints.
    pub(super) fn parse(text: &str) -> Self {
        let mut style = Style::default();
        let rows = text.lines().map(|line| parse_row(line, &mut style));
        Self {
            rows: rows.collect(),
        }
    }
}

/// Parses one row. A style lasts until it is changed, also beyond the end of the row.
fn parse_row(line: &str, style: &mut Style) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut column = 0;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if let Some(parameters) = read_sequence(&mut characters) {
                style.apply(&parameters);
            }
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.style == *style => last.text.push(character),
            _ => runs.push(Run {
                column,
                text: character.into(),
                style: *style,
            }),
        }
        column += 1;
    }
    runs
}

/// Reads a sequence after its escape character; returns the parameters of one that sets the style.
fn read_sequence(characters: &mut std::str::Chars<'_>) -> Option<String> {
    match characters.next()? {
        '[' => {
            let mut parameters = String::new();
            for character in characters {
                match character {
                    'm' => return Some(parameters),
                    '\u{40}'..='\u{7e}' => return None,
                    _ => parameters.push(character),
                }
            }
            None
        }
        ']' => {
            // A link or a title, up to its terminator.
            let mut previous = ' ';
            for character in characters {
                if character == '\u{7}' || (previous == '\u{1b}' && character == '\\') {
                    break;
                }
                previous = character;
            }
            None
        }
        _ => None,
    }
}

impl Style {
    fn apply(&mut self, parameters: &str) {
        let numbers = parameters.split([';', ':']);
        let mut numbers = numbers.map(|number| number.parse::<u8>().unwrap_or(0));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                3 => self.is_italic = true,
                4 => self.is_underlined = true,
                7 => self.is_reversed = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                23 => self.is_italic = false,
                24 => self.is_underlined = false,
                27 => self.is_reversed = false,
                30..=37 => self.foreground = Colour::Named(number - 30),
                38 => self.foreground = Colour::read(&mut numbers),
                39 => self.foreground = Colour::Default,
                40..=47 => self.background = Colour::Named(number - 40),
                48 => self.background = Colour::read(&mut numbers),
                49 => self.background = Colour::Default,
                90..=97 => self.foreground = Colour::Named(number - 90 + 8),
                100..=107 => self.background = Colour::Named(number - 100 + 8),
                _ => {}
            }
        }
    }
}

impl Colour {
    /// Reads `5;N` or `2;R;G;B`.
    fn read(numbers: &mut impl Iterator<Item = u8>) -> Self {
        let mut next = || numbers.next().unwrap_or(0);
        match next() {
            5 => Self::indexed(next()),
            2 => Self::Rgb(next(), next(), next()),
            _ => Self::Default,
        }
    }

    /// Returns a colour of the palette of 256: the theme's, then a cube of 6 × 6 × 6, then greys.
    fn indexed(index: u8) -> Self {
        let level = |step: u8| if step == 0 { 0 } else { 55 + step * 40 };
        match index {
            0..=15 => Self::Named(index),
            16..=231 => {
                let cube = index - 16;
                Self::Rgb(level(cube / 36), level(cube / 6 % 6), level(cube % 6))
            }
            232.. => {
                let grey = 8 + (index - 232) * 10;
                Self::Rgb(grey, grey, grey)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_where_its_style_changes() {
        let screen = Screen::parse("a\u{1b}[1;31mbc\u{1b}[0m d\n\u{1b}[38;5;196me");

        let red = Style {
            foreground: Colour::Named(1),
            is_bold: true,
            ..Style::default()
        };
        assert_eq!(screen.rows.len(), 2);
        assert_eq!(screen.rows[0][1].style, red);
        let texts: Vec<_> = screen.rows[0]
            .iter()
            .map(|run| (run.column, &*run.text))
            .collect();
        assert_eq!(texts, [(0, "a"), (1, "bc"), (3, " d")]);
        assert_eq!(screen.rows[1][0].style.foreground, Colour::Rgb(255, 0, 0));
    }

    #[test]
    fn a_style_lasts_to_the_next_row_and_other_sequences_are_skipped() {
        let screen = Screen::parse("\u{1b}[2mx\u{1b}[3Gy\n\u{1b}]8;;https://a.example\u{1b}\\z");

        assert_eq!(screen.rows[0][0].text, "xy");
        assert_eq!(screen.rows[1][0].text, "z");
        assert!(screen.rows[1][0].style.is_dim);
    }

    #[test]
    fn cut_sequences_are_no_error() {
        for text in [
            "\u{1b}",
            "\u{1b}[",
            "\u{1b}[38;5",
            "\u{1b}]8;",
            "\u{1b}[38m",
        ] {
            Screen::parse(text);
        }
    }
}
