// The lessons of other visits and tabs: each can be taken up or forgotten.

import { isLesson } from '../engine/lesson.js';
import { app } from './app.js';
import { $, element } from './elements.js';
import { lesson } from './lesson.js';
import { showLesson, tell, tellLearned } from './lesson-view.js';
import { momentOf } from './notation.js';
import { forgetLesson, keptLesson, keptLessons } from './store.js';
import { toldApart } from './titles.js';
import { say } from './words.js';
import { answered, kernelBytes } from './workers.js';

/** Lists the lessons of other visits and tabs, each to be taken up or forgotten. */
export async function showEarlier() {
  const all = await keptLessons();
  lesson.earlier = all.filter(({ key }) => key !== lesson.learned?.key);
  const button = (word, act, title) =>
    element('button', { type: 'button', onclick: act, 'aria-label': `${say(word)}: ${title}` }, say(word));
  const titles = toldApart(lesson.earlier.map(({ title }) => title));
  const items = lesson.earlier.map(({ key, step, at }, i) => {
    const title = titles[i];
    const said = say('learned_then', { title, n: step, time: momentOf(at) });
    const [goOn, forget] = [() => takeUp(key), () => forgetLesson(key).then(showEarlier)];
    return element('li', {}, `${said} `, button('take_up', goOn, title), ' ', button('forget', forget, title));
  });
  $('aprendidos').querySelector('ul').replaceChildren(...items);
  showLesson();
}

/** Takes up what was learned in another visit or tab. */
async function takeUp(key) {
  const [state] = await Promise.all([keptLesson(key), lesson.keeping]);
  if (lesson.run) return;
  if (!isLesson(state, app.facts.teaching)) return tell('does_not_fit');
  lesson.learned = Object.assign(state, { key });
  showEarlier();
  // What was kept on the way was not measured yet.
  state.loss = state.points.at(-1)?.[2] ?? null;
  state.loss ??= await measured(state);
  if (lesson.learned === state && !lesson.run) tellLearned();
}

/** Resolves to the loss of a state on the part that is not learned from; to null where it can't be had. */
async function measured({ text: { val }, plan: { config }, weights }) {
  tell('measuring');
  const told = answered({}, { measure: true, config, weights, val, kernel: kernelBytes() });
  return (await told.catch(() => ({ loss: null }))).loss;
}
