"""BERT base with its masked-language head: pytorch-pretrained-bert and transformers."""

import torchvision_first  # noqa: F401


def build_pretrained_bert():
    from pytorch_pretrained_bert import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(30522))


def build_transformers():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig())
