//! Following events over the daemon's restarts.

use litd_api::{Event, Events};

use crate::{Client, ControlError};

/// Where one is in the daemon's events.
pub struct Follow {
    after: u64,
    /// The newest event that was given out. Asked for again each time: another one under its
    /// number means that the daemon has started anew and counts from 1 again.
    newest: Option<Event>,
}

/// The news since the last poll.
#[derive(Debug, Default, PartialEq)]
pub struct News {
    /// Whether the daemon has started anew in between.
    pub restarted: bool,
    /// How many events came and are no longer kept.
    pub lost: u64,
    /// Events that are kept, oldest first.
    pub events: Vec<Event>,
}

impl Follow {
    /// From the event after a number on.
    #[must_use]
    pub fn new(after: u64) -> Self {
        Self {
            after,
            newest: None,
        }
    }

    /// Reads the news since the last poll.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn poll(&mut self, client: &Client) -> Result<News, ControlError> {
        self.news(|after| client.events(after))
    }

    fn news<E>(&mut self, events: impl Fn(u64) -> Result<Events, E>) -> Result<News, E> {
        let mut answer = events(self.asked())?;
        let restarted = self.is_of_another_start(&answer);
        if restarted {
            *self = Self::new(0);
            answer = events(self.asked())?;
        }
        Ok(News {
            restarted,
            ..self.take(answer)
        })
    }

    fn asked(&self) -> u64 {
        match &self.newest {
            Some(event) => event.seq.saturating_sub(1),
            None => self.after,
        }
    }

    fn is_of_another_start(&self, answer: &Events) -> bool {
        self.newest.as_ref().is_some_and(|newest| {
            let again = answer.events.iter().find(|event| event.seq == newest.seq);
            answer.last < newest.seq || again.is_some_and(|event| event != newest)
        })
    }

    fn take(&mut self, answer: Events) -> News {
        let known = self.newest.as_ref().map(|event| event.seq);
        let again = answer.events.iter().any(|event| Some(event.seq) == known);
        // An event that was given out before and is no longer kept does not count as lost.
        let lost = match known {
            Some(_) if !again => answer.lost.saturating_sub(1),
            _ => answer.lost,
        };
        let new = |event: &Event| known.is_none_or(|known| event.seq > known);
        let events: Vec<Event> = answer.events.into_iter().filter(new).collect();
        if let Some(event) = events.last() {
            self.newest = Some(event.clone());
        }
        News {
            restarted: false,
            lost,
            events,
        }
    }
}

#[cfg(test)]
mod tests {
    use litd_api::EventKind;

    use super::*;

    fn event(seq: u64, text: &str) -> Event {
        Event {
            seq,
            unix_seconds: 1e9 + seq as f64,
            kind: EventKind::State,
            warning: false,
            job: None,
            device: None,
            text: text.into(),
        }
    }

    /// A daemon that keeps the last few events of many.
    fn daemon(events: &[Event], kept: usize) -> impl Fn(u64) -> Result<Events, ()> {
        let (events, last) = (events.to_vec(), events.last().map_or(0, |event| event.seq));
        move |after| {
            let asked = events.iter().filter(|event| event.seq > after);
            let oldest = last.saturating_sub(kept as u64);
            let (lost, events): (Vec<_>, Vec<_>) =
                asked.cloned().partition(|event| event.seq <= oldest);
            Ok(Events {
                events,
                last,
                lost: lost.len() as u64,
            })
        }
    }

    fn numbers(news: &News) -> Vec<u64> {
        news.events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn every_event_comes_once_and_what_is_lost_is_counted() {
        let all: Vec<Event> = (1..=20).map(|seq| event(seq, "x")).collect();
        let mut follow = Follow::new(0);
        let news = follow.news(daemon(&all[..3], 5)).unwrap();
        assert_eq!((numbers(&news), news.lost), (vec![1, 2, 3], 0));
        let news = follow.news(daemon(&all[..3], 5)).unwrap();
        assert_eq!(news, News::default());
        // 4 to 8 and the one before are kept; then the one before is not, and nothing is lost.
        let news = follow.news(daemon(&all[..8], 6)).unwrap();
        assert_eq!((numbers(&news), news.lost), (vec![4, 5, 6, 7, 8], 0));
        let news = follow.news(daemon(&all[..13], 5)).unwrap();
        assert_eq!((numbers(&news), news.lost), (vec![9, 10, 11, 12, 13], 0));
        let news = follow.news(daemon(&all[..20], 5)).unwrap();
        assert_eq!((numbers(&news), news.lost), (vec![16, 17, 18, 19, 20], 2));
    }

    #[test]
    fn a_daemon_that_started_anew_is_read_from_its_first_event() {
        let before: Vec<Event> = (1..=4).map(|seq| event(seq, "before")).collect();
        let after: Vec<Event> = (1..=9).map(|seq| event(seq, "after")).collect();
        for count in [2, 4, 9] {
            let mut follow = Follow::new(0);
            follow.news(daemon(&before, 100)).unwrap();
            let news = follow.news(daemon(&after[..count], 100)).unwrap();
            assert!(news.restarted, "{count}");
            assert_eq!(news.events, after[..count]);
            let news = follow.news(daemon(&after[..count], 100)).unwrap();
            assert_eq!(news, News::default());
        }
    }

    #[test]
    fn what_was_seen_before_is_not_asked_for() {
        let all: Vec<Event> = (1..=4).map(|seq| event(seq, "x")).collect();
        let news = Follow::new(2).news(daemon(&all, 100)).unwrap();
        assert_eq!(numbers(&news), [3, 4]);
    }
}
