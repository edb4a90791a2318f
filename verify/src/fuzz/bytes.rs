//! Inputs drawn from seeds: the committed ones, changed. For tests on the stable compiler; libFuzzer, which sees what an input reaches, goes deeper.

use fastrand::Rng;

/// Draws inputs for one target.
#[derive(Debug)]
pub struct Bytes {
    chance: Rng,
    known: Vec<Vec<u8>>,
}

/// Numbers at the edges of what is counted.
const EDGES: [&str; 10] = [
    "0",
    "-1",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
];

/// Signs that mean something to some parser.
const SIGNS: &[u8] = b":/?#[]@!$&'()*+,;=%\"\\{}<>|^~-._ \t\r\n\0\x7f\xc3\xff";

/// No input is longer.
const LONGEST: usize = 4_096;

impl Bytes {
    /// Draws from these inputs, as `seed` says.
    #[must_use]
    pub fn new(seed: u64, known: Vec<Vec<u8>>) -> Self {
        Self { chance: Rng::with_seed(seed), known }
    }

    /// The next input.
    pub fn draw(&mut self) -> Vec<u8> {
        let mut input =
            if self.known.is_empty() { Vec::new() } else { self.known[self.chance.usize(..self.known.len())].clone() };
        for _ in 0..self.chance.usize(1..5) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.range(input.len());
        match self.chance.u8(..8) {
            0 => drop(input.drain(from..to)),
            1 => {
                let part = input[from..to].to_vec();
                let at = self.chance.usize(..=input.len());
                input.splice(at..at, part);
            }
            2 => {
                let sign = SIGNS[self.chance.usize(..SIGNS.len())];
                input.splice(from..from, [sign]);
            }
            3 => {
                let edge = EDGES[self.chance.usize(..EDGES.len())];
                self.replace_number(input, edge.as_bytes());
            }
            4 if !input.is_empty() => {
                let at = self.chance.usize(..input.len());
                input[at] ^= 1 << self.chance.u8(..8);
            }
            5 if !self.known.is_empty() => {
                let other = &self.known[self.chance.usize(..self.known.len())];
                let (start, end) = {
                    let a = self.chance.usize(..=other.len());
                    (a, self.chance.usize(a..=other.len()))
                };
                let part = other[start..end].to_vec();
                input.splice(from..to, part);
            }
            6 => {
                let part = input[from..to].repeat(self.chance.usize(2..40));
                input.splice(from..to, part);
            }
            _ => {
                let noise: Vec<u8> = (0..self.chance.usize(1..8)).map(|_| self.chance.u8(..)).collect();
                input.splice(from..to, noise);
            }
        }
        input.truncate(LONGEST);
    }

    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.chance.usize(..=length);
        (from, self.chance.usize(from..=length.min(from + 32)))
    }

    /// One of the numbers in the input becomes another one.
    fn replace_number(&mut self, input: &mut Vec<u8>, with: &[u8]) {
        let begins = |at: &usize| input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit());
        let numbers: Vec<usize> = (0..input.len()).filter(begins).collect();
        if numbers.is_empty() {
            return;
        }
        let from = numbers[self.chance.usize(..numbers.len())];
        let length = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        input.splice(from..from + length, with.iter().copied());
    }
}
