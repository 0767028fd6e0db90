// Probabilities of logits, what they say in bits, and means.

export function softmax(scores) {
  let highest = -Infinity;
  for (const score of scores) if (score > highest) highest = score;
  const weights = new Float64Array(scores.length);
  let sum = 0;
  for (let p = 0; p < scores.length; p++) sum += weights[p] = Math.exp(scores[p] - highest);
  for (let p = 0; p < weights.length; p++) weights[p] /= sum;
  return weights;
}

export const bitsOf = (p) => -Math.log2(p);

/** Returns how undecided probabilities are, in bits. */
export function entropy(probabilities) {
  return probabilities.reduce((sum, p) => sum + (p && p * bitsOf(p)), 0);
}

export const meanOf = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;
