// The page's scripts run in a browser, those of the engine in workers and in Node, too.

import js from '@eslint/js';
import globals from 'globals';

export default [
  js.configs.recommended,
  {
    rules: {
      'no-shadow': 'error',
      'no-unused-vars': ['error', { ignoreRestSiblings: true }], // some are named to leave them out
    },
  },
  {
    files: ['engine/*.js'],
    languageOptions: { globals: { ...globals['shared-node-browser'], self: 'readonly' } },
  },
  { files: ['ui/*.js'], languageOptions: { globals: globals.browser } },
  { files: ['tests/*.mjs'], languageOptions: { globals: globals.node } },
];
